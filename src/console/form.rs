//! What a form or a query says.

use std::collections::HashMap;

/// The most bytes of a form.
pub(super) const LARGEST: usize = 16 * 1024;

/// The fields by name. Of one that is there twice the first counts.
#[derive(Debug, Default)]
pub(super) struct Fields(HashMap<String, String>);

impl Fields {
    pub(super) fn read(encoded: &[u8]) -> Self {
        let mut fields = HashMap::new();
        for (name, value) in form_urlencoded::parse(encoded) {
            let value = value.trim().to_owned();
            fields.entry(name.into_owned()).or_insert(value);
        }
        Self(fields)
    }

    /// What was typed, without the spaces around it; nothing for a field that is
    /// not there.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// What is wrong with a field, for whoever has to mend it.
#[derive(Debug)]
pub(super) struct Wrong {
    pub field: &'static str,
    pub message: String,
}

impl Wrong {
    pub(super) fn in_field(field: &'static str, message: impl Into<String>) -> Self {
        Self {
            field,
            message: message.into(),
        }
    }
}
