//! Redis' messages, as far as a proxy has to tell them apart.
//!
//! A message is a line that begins with its kind, and what the line announces:
//! so many bytes and the end of a line, or so many messages.

use std::{io, ops::Range};

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// A message as it was sent, with all that is in it.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
    /// Where the strings are of which lengths were announced.
    strings: Vec<Range<usize>>,
}

impl Message {
    /// The next message. Between two messages the end of the stream is an error
    /// as well.
    pub(super) async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Self> {
        let mut message = Self::default();
        let mut missing = 1;
        while missing > 0 {
            let start = message.bytes.len();
            from.read_until(b'\n', &mut message.bytes).await?;
            let line = message.bytes[start..].strip_suffix(b"\r\n");
            let line = line.ok_or(io::ErrorKind::UnexpectedEof)?;
            missing -= 1;
            match line.split_first() {
                Some((b'$' | b'=' | b'!', length)) => {
                    if let Some(length) = number(length)? {
                        message.read_string(from, length).await?;
                    }
                }
                Some((b'*' | b'~' | b'>', count)) => missing += number(count)?.unwrap_or(0),
                Some((b'%', count)) => missing += 2 * number(count)?.unwrap_or(0),
                // Attributes come before what they are about.
                Some((b'|', count)) => missing += 2 * number(count)?.unwrap_or(0) + 1,
                _ => {}
            }
        }
        Ok(message)
    }

    async fn read_string(
        &mut self,
        from: &mut (impl AsyncBufRead + Unpin),
        length: usize,
    ) -> io::Result<()> {
        let start = self.bytes.len();
        let end = start + length;
        self.bytes.resize(end + 2, 0);
        from.read_exact(&mut self.bytes[start..]).await?;
        self.strings.push(start..end);
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The command of a request and its parameters.
    pub(super) fn texts(&self) -> Vec<&[u8]> {
        let texts = self.strings.iter().cloned().map(|text| &self.bytes[text]);
        texts.collect()
    }

    /// Whether a server says this unasked.
    pub(super) fn is_push(&self) -> bool {
        self.bytes.first() == Some(&b'>')
    }

    /// The code of an error, if it is one.
    pub(super) fn error(&self) -> Option<&[u8]> {
        let error = self.bytes.strip_prefix(b"-")?;
        error.split(u8::is_ascii_whitespace).next()
    }
}

/// A number in decimal digits. A negative one says that there is nothing.
fn number(digits: &[u8]) -> io::Result<Option<usize>> {
    if digits.starts_with(b"-") {
        return Ok(None);
    }
    let number = str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| {
        let digits = digits.escape_ascii();
        io::Error::new(io::ErrorKind::InvalidData, format!("no number: {digits}"))
    })
}

#[tokio::test]
async fn messages_are_told_apart() {
    let stream: &[u8] = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n$-1\r\n-MOVED 1 a:1\r\n\
        *2\r\n*-1\r\n%1\r\n+a\r\n:1\r\n>1\r\n+x\r\n|1\r\n+a\r\n#t\r\n,1.5\r\n_\r\n";
    let mut from = stream;
    let mut messages = Vec::new();
    while let Ok(message) = Message::read(&mut from).await {
        messages.push(message);
    }
    assert_eq!(messages[0].texts(), [&b"GET"[..], b"a\r\nb"]);
    assert_eq!(messages[2].error(), Some(&b"MOVED"[..]));
    assert_eq!(messages[3].bytes(), b"*2\r\n*-1\r\n%1\r\n+a\r\n:1\r\n");
    assert!(messages[4].is_push());
    assert_eq!(messages[5].bytes(), b"|1\r\n+a\r\n#t\r\n,1.5\r\n");
    assert_eq!(messages.len(), 7);
    let bytes = messages.iter().flat_map(Message::bytes);
    assert!(bytes.eq(stream), "they are as they were sent");
}
