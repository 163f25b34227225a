//! What the environment says, and what it must not say.

use super::Site;

/// All services refuse to start and name what is wrong; returns what they say.
pub(super) async fn is_refused(site: Site, names: &[&str]) -> String {
    let mut said = String::new();
    for service in ["charges", "testbed", "webhooks"] {
        let output = site.refusal(service).await;
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code().is_some_and(|code| code != 0),
            "{service}: {:?}: {text}",
            output.status
        );
        for name in names {
            assert!(
                text.contains(name),
                "{service} does not name {name}: {text}"
            );
        }
        assert!(text.lines().count() <= 2, "more than a line: {text}");
        // What Rust shows to programmers.
        for debug in ["kind:", "Error {", "(0)", "panicked"] {
            assert!(!text.contains(debug), "{service}: {text}");
        }
        said.push_str(&text);
    }
    said
}

#[tokio::test]
async fn a_wrong_value_is_refused_by_its_name() {
    let wrong = [
        ("TTL", "soon"),
        ("TTL", "0s"),
        ("TTL", "100000h"),
        ("LEASE", "-1s"),
        ("MAX_LEASE", "long"),
        ("SWEEP_EVERY", "often"),
        ("DRAIN", "30"),
        ("SCOPE", "tenant"),
        ("IN_FLIGHT", "wait"),
        ("IN_FLIGHT", "wait:5"),
        ("ABANDONED", "retry"),
        ("ARCHIVE_LOOKUP", "always"),
        ("STORE_DOWN", "ajar"),
        ("BIND", "nowhere"),
        ("STORE_URL", "mysql://localhost/charges"),
        ("ARCHIVE_URL", "charges.db"),
    ];
    for (name, value) in wrong {
        is_refused(Site::memory().set(name, value), &[name]).await;
    }
}

#[tokio::test]
async fn values_that_cannot_go_together_are_refused() {
    let lease = Site::memory().set("LEASE", "10m").set("MAX_LEASE", "1m");
    is_refused(lease, &["lease", "max_lease"]).await;
    let max_lease = Site::memory().set("TTL", "1m").set("MAX_LEASE", "1m");
    is_refused(max_lease, &["max_lease", "TTL"]).await;
    let archive = Site::memory()
        .set("ARCHIVE_LOOKUP", "all")
        .set("ARCHIVE_URL", "none");
    is_refused(archive, &["archive"]).await;
}

#[tokio::test]
async fn an_address_in_use_and_a_file_that_cannot_be_opened_are_named() {
    let site = Site::memory();
    let service = site.testbed().await;
    let address = service.address.to_string();
    is_refused(Site::memory().set("BIND", &address), &["BIND", &address]).await;
    let missing = Site::memory().set("STORE_URL", "sqlite:no/such/directory/a.db");
    is_refused(missing, &["STORE_URL", "create its directory"]).await;
}
