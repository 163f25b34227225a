//! The console in a browser: whatever the colours and the width, by keyboard,
//! and without scripts.

use std::{env, fs, path::PathBuf};

use axum_idempotency::console::Console;
use fantoccini::{Locator, key::Key};
use serde_json::{Value, json};

use super::{
    driver::{Browser, PHONE, VIEWS, View},
    http::Site,
    stage::{Stage, page_of},
    traffic,
};
use crate::support::{Backend, Fault, Verb, attempt::key, in_time};

/// Every page, and those that tell of errors, by the name of its picture.
fn pages() -> Vec<(&'static str, String)> {
    vec![
        ("overview", "/overview".to_owned()),
        ("look-up", "/keys".to_owned()),
        ("look-up-error", "/keys?scoped-key=idem:v1:short".to_owned()),
        ("key-running", page_of("running")),
        ("key-taken-over", page_of("taken over")),
        ("key-lapsed", page_of("lapsed")),
        ("key-completed", page_of("completed")),
        ("key-not-kept", page_of("not kept")),
        ("key-speculative", page_of("speculative")),
        ("key-expired", page_of("expired")),
        ("key-archived", page_of("archived without outcome")),
        ("key-twice", page_of("used in two windows")),
        ("key-unknown", page_of("never seen")),
        ("in-flight", "/in-flight".to_owned()),
        (
            "in-flight-then",
            "/in-flight?at=2026-12-01T02:02&limit=12".to_owned(),
        ),
        (
            "in-flight-none",
            "/in-flight?at=2024-01-01T00:00".to_owned(),
        ),
        ("in-flight-error", "/in-flight?at=then".to_owned()),
        ("not-found", "/nowhere".to_owned()),
    ]
}

#[tokio::test]
async fn every_page_is_accessible_in_light_and_dark_at_a_desk_and_on_a_phone() {
    let backend = Backend::postgres().await;
    let stage = Stage::set(backend).await;
    traffic::goes_through(&stage).await;
    let site = Site::open(stage.console()).await;
    let down = Stage::set(Backend::memory()).await;
    down.store.always(Verb::Inspect, Fault::DOWN);
    let down = Site::open(Console::new(down.inspector())).await;

    let mut all: Vec<_> = pages()
        .into_iter()
        .map(|(name, path)| (name, site.url(&path)))
        .collect();
    all.push(("down-overview", down.url("/overview")));
    all.push(("down-key", down.url(&page_of("running"))));
    let axe = axe();
    let browser = Browser::open().await;
    let mut faults = Vec::new();
    for view in VIEWS {
        browser.looks_as(view).await;
        for (name, url) in &all {
            browser.goes_to(url).await;
            let name = format!("{name}-{view}");
            browser.draws(&name).await;
            faults.extend(
                too_wide(&browser, view)
                    .await
                    .map(|fault| format!("{name}: {fault}")),
            );
            let found = violations(&browser, &axe).await;
            faults.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
            // What is folded away is looked at too.
            let opened = browser.asks(UNFOLD).await;
            if opened != json!(0) {
                let found = violations(&browser, &axe).await;
                faults.extend(
                    found
                        .into_iter()
                        .map(|fault| format!("{name}, unfolded: {fault}")),
                );
                faults.extend(
                    too_wide(&browser, view)
                        .await
                        .map(|fault| format!("{name}, unfolded: {fault}")),
                );
            }
        }
    }
    browser.closes().await;
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

const UNFOLD: &str = "
    const folded = document.querySelectorAll('details:not([open])');
    folded.forEach(one => { one.open = true; });
    return folded.length;";

/// A page that has to be scrolled sideways. Its tables have regions that do. On
/// a phone a window is said to be as wide as what is in it.
async fn too_wide(browser: &Browser, view: View) -> Option<String> {
    let width = browser
        .asks("return document.documentElement.scrollWidth;")
        .await;
    let width = width.as_u64().expect("a width");
    (width > view.width.into()).then(|| format!("{width} px wide"))
}

async fn violations(browser: &Browser, axe: &str) -> Vec<String> {
    browser.asks(axe).await;
    let script = "
        const done = arguments[arguments.length - 1];
        axe.run(document, { resultTypes: ['violations'] }).then(
            found => done({
                passed: found.passes.length,
                violations: found.violations.map(one => one.id + ': ' + one.nodes.map(
                    node => node.target.join(' ') + ' (' + node.failureSummary + ')').join('; ')),
            }),
            error => done({ passed: 0, violations: ['axe fails: ' + error] }));";
    let found = browser.page.execute_async(script, Vec::new()).await;
    let found = found.expect("axe runs");
    assert!(
        found["passed"].as_u64() > Some(5),
        "axe has looked: {found}"
    );
    let violations = found["violations"].as_array().expect("a list").iter();
    violations
        .map(|one| one.as_str().unwrap_or_default().to_owned())
        .collect()
}

/// axe-core, as `tests/run.sh` gets it from npm.
fn axe() -> String {
    let usual = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../axe/package/axe.min.js");
    let path = env::var_os("AXE_CORE").map_or(usual, PathBuf::from);
    fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("axe-core is missing at {}: {error}. tests/run.sh gets it, or AXE_CORE names its axe.min.js", path.display())
    })
}

#[tokio::test]
async fn the_keyboard_reaches_everything_and_shows_where_it_is() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let browser = Browser::open().await;
    in_time(async {
        browser.goes_to(&site.url("/keys")).await;
        browser.presses(Key::Tab).await;
        assert_eq!(focused(&browser).await["text"], "Skip to content");
        let mut seen = vec![visible_focus(&browser).await];
        for _ in 0..12 {
            browser.presses(Key::Tab).await;
            seen.push(visible_focus(&browser).await);
        }
        let expected = [
            "Skip to content",
            "Overview",
            "Look up a key",
            "In flight",
            "#scoped-key",
            "Look up",
            "#kind",
            "#caller",
            "#key",
            "#method",
            "#path",
            "Derive and look up",
        ];
        assert_eq!(seen[..expected.len()], expected, "the order on the page");

        // Past the navigation at once.
        browser.goes_to(&site.url("/keys")).await;
        browser.presses(Key::Tab).await;
        browser.presses(Key::Enter).await;
        browser.presses(Key::Tab).await;
        assert_eq!(visible_focus(&browser).await, "#scoped-key");
        browser.types(&key("completed").to_string()).await;
        browser.presses(Key::Enter).await;
        let heading = format!("Key {}", key("completed"));
        arrives(&browser, &heading).await;

        // By the caller: four fields further.
        browser.goes_to(&site.url("/keys")).await;
        for _ in 0..8 {
            browser.presses(Key::Tab).await;
        }
        assert_eq!(visible_focus(&browser).await, "#caller");
        browser.types("alice").await;
        browser.presses(Key::Tab).await;
        browser.types("running").await;
        browser.presses(Key::Enter).await;
        arrives(&browser, &format!("Key {}", key("running"))).await;
        let url = browser.page.current_url().await.expect("a URL");
        assert!(!url.as_str().contains("alice"), "{url}");

        // A table that is wider than the window takes the focus, so that it can
        // be scrolled.
        browser
            .looks_as(View {
                scheme: "light",
                width: PHONE,
            })
            .await;
        browser
            .goes_to(&site.url("/in-flight?at=2026-12-01T02:02"))
            .await;
        let mut stops = Vec::new();
        for _ in 0..30 {
            browser.presses(Key::Tab).await;
            stops.push(visible_focus(&browser).await);
        }
        assert!(stops.contains(&"in-flight-caption".to_owned()), "{stops:?}");
    })
    .await;
    browser.closes().await;
}

async fn arrives(browser: &Browser, heading: &str) {
    crate::support::servers::until_some(&format!("the page {heading:?}"), async || {
        let found = browser.page.find(Locator::Css("h1")).await.ok()?;
        (found.text().await.ok()? == heading).then_some(())
    })
    .await;
}

/// What has the focus, and how it is drawn.
async fn focused(browser: &Browser) -> Value {
    browser
        .asks(
            "
        const at = document.activeElement;
        const style = getComputedStyle(at);
        const box = at.getBoundingClientRect();
        return {
            text: at.id ? '#' + at.id : at.getAttribute('aria-labelledby') || at.textContent.trim(),
            isBody: at === document.body,
            outline: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
            inside: box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight,
        };",
        )
        .await
}

/// The name of what has the focus, which has to be seen.
async fn visible_focus(browser: &Browser) -> String {
    let focused = focused(browser).await;
    let is_seen =
        focused["isBody"] == true || focused["outline"] == true && focused["inside"] == true;
    assert!(is_seen, "the focus is seen: {focused}");
    focused["text"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_forms_work_in_a_browser_that_runs_no_script() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let browser = Browser::without_script().await;
    in_time(async {
        // It is really off.
        let probe = axum::Router::new().route(
            "/",
            axum::routing::get(|| async {
                axum::response::Html(
                    "<h1>off</h1><script>document.querySelector('h1').textContent = 'on'</script>",
                )
            }),
        );
        let probe = Site::serve(probe, "").await;
        browser.goes_to(&probe.url("/")).await;
        assert_eq!(browser.heading().await, "off");

        browser.goes_to(&site.url("/keys")).await;
        fills(&browser, "#scoped-key", &key("completed").to_string()).await;
        arrives(&browser, &format!("Key {}", key("completed"))).await;

        browser.goes_to(&site.url("/keys")).await;
        let caller = browser
            .page
            .find(Locator::Css("#caller"))
            .await
            .expect("a field");
        caller.send_keys("alice").await.expect("it takes text");
        fills(&browser, "#key", "lapsed").await;
        arrives(&browser, &format!("Key {}", key("lapsed"))).await;

        browser.goes_to(&site.url("/in-flight")).await;
        let button = browser
            .page
            .find(Locator::Css("button"))
            .await
            .expect("a button");
        button.click().await.expect("it is pressed");
        let result = browser
            .page
            .wait()
            .for_element(Locator::Css("#result"))
            .await;
        let result = result.expect("the result").text().await.expect("a text");
        assert_eq!(result, "At 2026-12-01 02:14:00 UTC");
    })
    .await;
    browser.closes().await;
}

async fn fills(browser: &Browser, field: &str, text: &str) {
    let field = browser
        .page
        .find(Locator::Css(field))
        .await
        .expect("a field");
    field
        .send_keys(&format!("{text}{}", char::from(Key::Enter)))
        .await
        .expect("it takes text");
}

#[tokio::test]
async fn the_browser_blocks_nothing_of_a_page() {
    let stage = Stage::set(Backend::memory()).await;
    let site = Site::open(stage.console()).await;
    let browser = Browser::open().await;
    for page in ["/overview".to_owned(), page_of("completed")] {
        browser.goes_to(&site.url(&page)).await;
        let styled = browser.asks("return document.styleSheets.length === 1 && document.styleSheets[0].cssRules.length > 20;").await;
        assert_eq!(styled, json!(true), "{page} has its stylesheet");
    }
    browser.closes().await;
}
