//! Finds the id of what a request made, where its handler did not name it.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::record::ResourceId;

/// The string or integer at `pointer` (RFC 6901) in a JSON body. Only the way
/// to it is read into memory.
pub(crate) fn in_json(body: &[u8], pointer: &str) -> Option<ResourceId> {
    let steps: Vec<String> = pointer
        .split('/')
        .skip(1)
        .map(|step| step.replace("~1", "/").replace("~0", "~"))
        .collect();
    let mut json = serde_json::Deserializer::from_slice(body);
    let found = At(&steps).deserialize(&mut json).ok()?;
    ResourceId::new(&found?)
}

/// The last segment of a `Location`.
pub(crate) fn in_location(location: &str) -> Option<ResourceId> {
    let path = location.split(['?', '#']).next()?;
    let path = path.split_once("://").map_or(path, |(_, rest)| {
        rest.split_once('/').map_or("", |(_, path)| path)
    });
    ResourceId::new(path.trim_end_matches('/').rsplit('/').next()?)
}

struct At<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.0.split_first() {
                Some((step, rest)) if *step == name => found = map.next_value_seed(At(rest))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let wanted = self.0.split_first();
        let mut found = None;
        for index in 0_usize.. {
            let here = wanted.filter(|(step, _)| **step == index.to_string());
            let next = match here {
                Some((_, rest)) => seq.next_element_seed(At(rest))?.map(|value| found = value),
                None => seq.next_element::<IgnoredAny>()?.map(drop),
            };
            if next.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| text.to_owned()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| number.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        String::deserialize(json).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Option<ResourceId> {
        ResourceId::new(text)
    }

    #[test]
    fn the_id_is_found_where_the_pointer_leads() {
        assert_eq!(in_json(br#"{"id":"ch_1","x":[1]}"#, "/id"), id("ch_1"));
        assert_eq!(
            in_json(br#"{"data":[{"id":7},{"id":8}]}"#, "/data/1/id"),
            id("8")
        );
        assert_eq!(in_json(br#"{"a/b":{"~":"x"}}"#, "/a~1b/~0"), id("x"));
        assert_eq!(in_json(br#""whole""#, ""), id("whole"));
    }

    #[test]
    fn what_is_no_id_is_none() {
        for body in [
            r#"{"id":null}"#,
            r#"{"id":1.5}"#,
            r#"{"id":{}}"#,
            "{}",
            "",
            "nonsense",
            r#"{"id":"a b"}"#,
        ] {
            assert_eq!(in_json(body.as_bytes(), "/id"), None, "for {body}");
        }
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(256));
        assert_eq!(
            in_json(long.as_bytes(), "/id"),
            None,
            "256 characters could hide a payload"
        );
    }

    #[test]
    fn the_last_segment_of_a_location_is_an_id() {
        assert_eq!(in_location("/v1/charges/ch_1"), id("ch_1"));
        assert_eq!(
            in_location("https://api.example/v1/charges/ch_1/?x=/y#z"),
            id("ch_1")
        );
        assert_eq!(in_location("https://api.example"), None);
        assert_eq!(in_location("/"), None);
    }
}
