//! Guides: one page for each question that comes before the first request, or
//! after the first incident.
//!
//! | guide | its question |
//! | --- | --- |
//! | [`scope`] | Whose key is it, and where is it unique? |
//! | [`ttl`] | How long must a record live, and how is that changed? |
//! | [`archive`] | What is known after that, and for how long? |
//! | [`stores`] | Which store, and what does it promise? |
//! | [`security`] | What is trusted, what is stored, what can an attacker do? |
//! | [`comparison`] | What do other systems do? |
//! | [`writing_a_store`] | How is a store of one's own written and tested? |
//! | [`operations`] | What does the one who carries the pager have? |
//! | [`runbook`] | And what is to be done? |
//!
//! They say how to choose. What an item does exactly is said beside the item.

pub mod scope {
    #![doc = include_str!("scope.md")]
}

pub mod ttl {
    #![doc = include_str!("ttl.md")]
}

pub mod archive {
    #![doc = include_str!("archive.md")]
}

pub mod stores {
    #![doc = include_str!("stores.md")]
}

pub mod security {
    #![doc = include_str!("security.md")]
}

pub mod comparison {
    #![doc = include_str!("comparison.md")]
}

pub mod writing_a_store {
    #![doc = include_str!("writing_a_store.md")]
}

pub mod operations {
    #![doc = include_str!("operations.md")]
}

pub mod runbook {
    #![doc = include_str!("runbook.md")]
}
