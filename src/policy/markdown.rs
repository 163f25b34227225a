//! Text of an API, such as the name of a header, inside Markdown: whatever is
//! in it, it ends no code span, no table cell and no line.

use std::fmt::Write as _;

/// A code span. What a span in backticks could not hold, in a table or outside,
/// is written as HTML, where every mark has a number instead.
pub(super) fn code(text: &str) -> String {
    let is_plain = |c: char| !matches!(c, '`' | '|' | '\\') && !c.is_control();
    let is_framed = text.starts_with(' ') || text.ends_with(' ') || text.is_empty();
    if text.chars().all(is_plain) && !is_framed {
        return format!("`{text}`");
    }
    format!("<code>{}</code>", numbered(text))
}

/// Text outside code spans.
pub(super) fn plain(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || " -,.():/".contains(c);
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) {
            escaped.push(c);
        } else {
            escaped += &numbered(c.encode_utf8(&mut [0; 4]));
        }
    }
    escaped
}

/// Marks and spaces as character references, which Markdown takes from HTML;
/// line breaks and other controls as a string literal spells them.
fn numbered(text: &str) -> String {
    let spelt = text.chars().flat_map(|c| {
        let escaped = c.is_control().then(|| c.escape_default());
        let itself = (!c.is_control()).then_some(c);
        escaped.into_iter().flatten().chain(itself)
    });
    let mut numbered = String::new();
    for c in spelt {
        if c.is_alphanumeric() || c == '-' {
            numbered.push(c);
        } else {
            // Writing to a string cannot fail.
            let _ = write!(numbered, "&#{};", u32::from(c));
        }
    }
    numbered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_code_span_whatever_is_in_it() {
        for (text, span) in [
            ("Idempotency-Key", "`Idempotency-Key`"),
            ("/data/id*", "`/data/id*`"),
            ("", "<code></code>"),
            ("a|b", "<code>a&#124;b</code>"),
            ("`a`", "<code>&#96;a&#96;</code>"),
            ("/a\n b", "<code>&#47;a&#92;n&#32;b</code>"),
            ("/a\\", "<code>&#47;a&#92;</code>"),
            ("<b>|", "<code>&#60;b&#62;&#124;</code>"),
        ] {
            assert_eq!(code(text), span, "for {text:?}");
        }
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(plain("path, query (version 1)"), "path, query (version 1)");
        assert_eq!(plain("x|y_z*`\n"), "x&#124;y&#95;z&#42;&#96;&#92;n");
    }
}
