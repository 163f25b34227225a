//! Where a Redis server is, as a connection URL says it.

use std::fmt;

/// A connection URL, taken apart as far as tests rewrite it. Its parts are text
/// as it stands in the URL.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// User and password, with the `@` after them.
    login: String,
    host: String,
    port: u16,
    /// From the slash before the number of the database, or the parameters.
    rest: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Self {
        Self::try_parse(url)
            .unwrap_or_else(|| panic!("not of the form redis://[LOGIN@]HOST[:PORT]...: {url}"))
    }

    fn try_parse(url: &str) -> Option<Self> {
        let url = url
            .strip_prefix("redis://")
            .or_else(|| url.strip_prefix("valkey://"))?;
        let end = url.find(['/', '?']).unwrap_or(url.len());
        let (authority, rest) = url.split_at(end);
        let login = authority.rfind('@').map_or(0, |at| at + 1);
        let (login, place) = authority.split_at(login);
        let with_port = place
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (host, port) = with_port.unwrap_or((place, 6379));
        (!host.is_empty()).then(|| Self {
            login: login.to_owned(),
            host: host.to_owned(),
            port,
            rest: rest.to_owned(),
        })
    }

    /// Host and port.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The same place by way of a port of this machine.
    pub(super) fn by_way_of(&self, port: u16) -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port,
            ..self.clone()
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (login, place) = (&self.login, self.place());
        write!(f, "redis://{login}{place}{}", self.rest)
    }
}

#[test]
fn an_address_reads_like_its_url() {
    for url in [
        "redis://127.0.0.1:6380",
        "redis://me:se%40cret@[::1]:6379/3?protocol=resp3",
    ] {
        assert_eq!(Address::parse(url).to_string(), url);
    }
    let address = Address::parse("redis://:secret@cache/1");
    assert_eq!(address.place(), "cache:6379");
    let address = address.by_way_of(7);
    assert_eq!(address.to_string(), "redis://:secret@127.0.0.1:7/1");
}
