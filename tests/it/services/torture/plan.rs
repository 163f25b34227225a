//! What is sent.

use std::{fmt::Write as _, net::SocketAddr, sync::Arc};

use sha2::{Digest as _, Sha256};

use crate::services::{http::Request, ulid};

pub(super) const TENANTS: [&str; 3] = ["acct_a", "acct_b", "acct_c"];

/// Numbers that a seed repeats (`SplitMix64`).
pub(super) struct Random(u64);

impl Random {
    /// From `TORTURE_SEED`, or from a new seed, which is printed.
    pub(super) fn seeded(name: &str) -> Self {
        let seed = std::env::var("TORTURE_SEED").map(|seed| seed.parse().expect("a number"));
        let seed = seed.unwrap_or_else(|_| uuid::Uuid::new_v4().as_u64_pair().0);
        println!("torture, {name}: TORTURE_SEED={seed}");
        Self(seed)
    }

    pub(super) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Below `end`, evenly enough.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits") % end
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// A key, and what its handler is to do: all tenants use it alike.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) key: String,
    pub(super) status: u16,
    pub(super) fate: Fate,
    target: String,
    padding: usize,
}

/// What becomes of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It replays.
    Kept,
    /// It is too large to be kept.
    TooLarge,
    /// Its status lets a retry run again.
    Forgotten,
    /// The handler panics after its effect.
    Panics,
}

impl Plan {
    pub(super) fn draw(random: &mut Random) -> Arc<Self> {
        let fate = match random.below(12) {
            0 => Fate::Panics,
            1 => Fate::Forgotten,
            2 => Fate::TooLarge,
            _ => Fate::Kept,
        };
        let (size, status) = match fate {
            Fate::Panics => (0, 500),
            Fate::Forgotten => (0, random.pick(&[425, 429])),
            Fate::TooLarge => (1_500_000, random.pick(&[200, 201])),
            Fate::Kept => {
                let statuses = [200, 200, 200, 201, 201, 400, 404, 409, 422, 500, 503];
                (
                    random.pick(&[0, 0, 500, 5_000, 100_000]),
                    random.pick(&statuses),
                )
            }
        };
        let path = random.pick(&["/echo", "/v1/echo", "/v2/echo"]);
        let delay = random.pick(&[0, 0, 0, 5, 20, 50, 100, 300, 800]);
        let stream = random.below(2);
        let panic = u8::from(fate == Fate::Panics);
        let timestamped = ulid();
        Arc::new(Self {
            key: match random.below(2) {
                0 => timestamped,
                _ => format!("order-{timestamped}"),
            },
            status,
            fate,
            target: format!(
                "{path}?delay_ms={delay}&status={status}&size={size}&stream={stream}&panic={panic}"
            ),
            padding: random.pick(&[0, 10, 1_000, 50_000]),
        })
    }

    /// Two variants share the key and differ in the body.
    pub(super) fn request(&self, to: SocketAddr, tenant: &str, variant: usize) -> Request {
        Request::new(to, "POST", &self.target)
            .key(&self.key)
            .tenant(tenant)
            .body(self.body(tenant, variant))
    }

    /// The digest by which an answer tells whose request it belongs to.
    pub(super) fn body_sha256(&self, tenant: &str, variant: usize) -> String {
        let digest = Sha256::digest(self.body(tenant, variant));
        digest.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn body(&self, tenant: &str, variant: usize) -> Vec<u8> {
        let padding = "x".repeat(self.padding);
        format!("{tenant} {} {variant} {padding}", self.key).into_bytes()
    }
}
