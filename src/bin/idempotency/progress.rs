//! How far long work has come, on standard error, when that is a terminal.

use std::time::Duration;

use axum_idempotency::inspect::InspectStore;
use indicatif::{ProgressBar, ProgressStyle};

/// Of so many; of zero, only that it goes on.
pub(crate) fn bar(what: &'static str, total: u64) -> ProgressBar {
    let bar = if total == 0 {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::new(total).with_style(style())
    };
    bar.set_message(what);
    bar.enable_steady_tick(TICK);
    bar
}

/// Runs `work`, which leads to an empty backlog, and shows how much of it is
/// left.
pub(crate) async fn until_swept<W: Future>(
    what: &'static str,
    store: Option<&dyn InspectStore>,
    work: W,
) -> W::Output {
    // Whoever sees no bar has no use for its questions.
    let visible = !bar_is_hidden();
    let store = store.filter(|_| visible);
    let Some(store) = store else {
        return work.await;
    };
    let backlog = store.backlog().await.unwrap_or_default();
    let bar = bar(what, backlog);
    let watch = async {
        loop {
            tokio::time::sleep(ASK_EVERY).await;
            if let Ok(left) = store.backlog().await {
                bar.set_position(backlog.saturating_sub(left));
            }
        }
    };
    let done = tokio::select! {
        done = work => done,
        never = watch => never,
    };
    bar.finish_and_clear();
    done
}

fn bar_is_hidden() -> bool {
    ProgressBar::new(1).is_hidden()
}

fn style() -> ProgressStyle {
    let template = "{msg} {wide_bar} {human_pos}/{human_len} {eta}";
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

const TICK: Duration = Duration::from_millis(200);
const ASK_EVERY: Duration = Duration::from_secs(1);
