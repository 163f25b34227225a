//! PostgreSQL's messages, as far as a proxy has to tell them apart.
//!
//! Every message is a byte that tells its kind, its length, and so many bytes;
//! but the first ones of a client have no kind.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// A message as it was sent.
pub(super) struct Message {
    bytes: Vec<u8>,
    has_kind: bool,
}

impl Message {
    /// The next message. Between two messages the end of the stream is an
    /// error as well.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let kind = from.read_u8().await?;
        Self::read_rest(from, vec![kind], true).await
    }

    /// One of a client's first messages.
    pub(super) async fn read_first(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        Self::read_rest(from, Vec::new(), false).await
    }

    async fn read_rest(
        from: &mut (impl AsyncRead + Unpin),
        mut bytes: Vec<u8>,
        has_kind: bool,
    ) -> io::Result<Self> {
        let length = from.read_u32().await?;
        bytes.extend(length.to_be_bytes());
        // The length counts itself.
        let rest = u64::from(length.saturating_sub(4));
        let read = from.take(rest).read_to_end(&mut bytes).await?;
        if u64::try_from(read) != Ok(rest) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Self { bytes, has_kind })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn kind(&self) -> Option<u8> {
        self.bytes.first().copied().filter(|_| self.has_kind)
    }

    /// After kind and length.
    pub(super) fn content(&self) -> &[u8] {
        let start = if self.has_kind { 5 } else { 4 };
        self.bytes.get(start..).unwrap_or_default()
    }

    /// Whether a client asks, before anything else, to go on encrypted.
    pub(super) fn asks_for_encryption(&self) -> bool {
        let code = self
            .content()
            .first_chunk()
            .copied()
            .map(u32::from_be_bytes);
        !self.has_kind && matches!(code, Some(SSL_REQUEST | GSS_ENCRYPTION_REQUEST))
    }

    /// The content, split after the first string in it, which ends at a zero.
    pub(super) fn split_string(content: &[u8]) -> (&[u8], &[u8]) {
        let end = content.iter().position(|byte| *byte == 0);
        let end = end.unwrap_or(content.len());
        (&content[..end], content.get(end + 1..).unwrap_or_default())
    }
}

pub(super) const NO_ENCRYPTION: u8 = b'N';

/// A client's kinds.
pub(super) const QUERY: u8 = b'Q';
pub(super) const PARSE: u8 = b'P';
pub(super) const BIND: u8 = b'B';
pub(super) const CLOSE: u8 = b'C';
pub(super) const SYNC: u8 = b'S';
pub(super) const FUNCTION_CALL: u8 = b'F';

/// The server's kind that ends its answer to a request.
pub(super) const READY_FOR_QUERY: u8 = b'Z';

const SSL_REQUEST: u32 = 80_877_103;
const GSS_ENCRYPTION_REQUEST: u32 = 80_877_104;
