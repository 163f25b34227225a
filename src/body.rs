//! Bodies held in memory, up to a limit: the whole request before it is
//! fingerprinted, the whole response before it is recorded.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt as _, LengthLimitError};
use tokio::time::Instant;

/// A body that has been read to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) data: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

/// Why a request body cannot be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unheld {
    TooLarge,
    Unreadable,
}

/// Reads a request body of at most `limit` bytes, whatever its declared length
/// says. Nothing beyond the frame that crosses the limit is read.
pub(crate) async fn read_request(mut body: Body, limit: usize) -> Result<Whole, Unheld> {
    if body.size_hint().lower() > limit as u64 {
        return Err(Unheld::TooLarge);
    }
    let mut pile = Pile::default();
    while let Some(frame) = body.frame().await {
        pile.add(frame.map_err(|error| limit_of_another_layer(&error))?);
        if pile.length > limit {
            return Err(Unheld::TooLarge);
        }
    }
    Ok(pile.whole())
}

/// A limit set by a layer outside this one ends the body with its own error.
fn limit_of_another_layer(error: &(dyn std::error::Error + 'static)) -> Unheld {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return Unheld::TooLarge;
        }
        cause = error.source();
    }
    Unheld::Unreadable
}

/// A response body as far as it could be held.
#[derive(Debug)]
pub(crate) enum Held {
    /// To its end, without trailers, inside limit and deadline.
    Whole(Bytes),
    /// It has to go on to its client as it comes: what was read, then the rest.
    Streaming(Body),
}

/// Holds a response body of at most `limit` bytes that ends within `deadline`.
pub(crate) async fn hold_response(mut body: Body, limit: usize, deadline: Duration) -> Held {
    if body.size_hint().lower() > limit as u64 {
        return Held::Streaming(body);
    }
    let deadline = Instant::now() + deadline;
    let mut pile = Pile::default();
    loop {
        match tokio::time::timeout_at(deadline, body.frame()).await {
            Ok(None) => {
                let whole = pile.whole();
                return match whole.trailers {
                    None => Held::Whole(whole.data),
                    Some(_) => Held::Streaming(Body::new(Replayed::new(whole))),
                };
            }
            Ok(Some(Ok(frame))) => {
                pile.add(frame);
                if pile.length > limit {
                    return Held::Streaming(pile.followed_by(Rest::Body(body)));
                }
            }
            Ok(Some(Err(error))) => {
                return Held::Streaming(pile.followed_by(Rest::Failed {
                    error: Some(error),
                    is_flushed: false,
                }));
            }
            Err(_) => return Held::Streaming(pile.followed_by(Rest::Body(body))),
        }
    }
}

/// Frames in the order they came. One data frame, the usual case, is kept
/// without copying; from the second on they are joined, since a frame of one
/// byte would hold on to a whole buffer.
#[derive(Debug, Default)]
struct Pile {
    first: Bytes,
    joined: BytesMut,
    length: usize,
    trailers: Option<HeaderMap>,
}

impl Pile {
    fn add(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if self.length == 0 => {
                self.length = data.len();
                self.first = data;
            }
            Ok(data) => {
                if self.joined.is_empty() {
                    self.joined
                        .extend_from_slice(&std::mem::take(&mut self.first));
                }
                self.length += data.len();
                self.joined.extend_from_slice(&data);
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    self.trailers.get_or_insert_default().extend(trailers);
                }
            }
        }
    }

    fn whole(self) -> Whole {
        let data = if self.joined.is_empty() {
            self.first
        } else {
            self.joined.freeze()
        };
        Whole {
            data,
            trailers: self.trailers,
        }
    }

    fn followed_by(self, rest: Rest) -> Body {
        Body::new(Resumed {
            held: Replayed::new(self.whole()),
            rest,
        })
    }
}

/// A whole body given again.
#[derive(Debug)]
pub(crate) struct Replayed(Whole);

impl Replayed {
    pub(crate) fn new(whole: Whole) -> Self {
        Self(whole)
    }

    fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        if self.0.data.is_empty() {
            self.0.trailers.take().map(Frame::trailers)
        } else {
            Some(Frame::data(std::mem::take(&mut self.0.data)))
        }
    }
}

impl HttpBody for Replayed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.next_frame().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.0.data.is_empty() && self.0.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.data.len() as u64)
    }
}

/// What was read of a body, then what comes of it.
#[derive(Debug)]
struct Resumed {
    held: Replayed,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    Body(Body),
    /// The server that sends the body drops what it has not sent yet when it
    /// meets an error, and sends what it has when it has to wait.
    Failed {
        error: Option<axum::Error>,
        is_flushed: bool,
    },
}

impl HttpBody for Resumed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(frame) = self.held.next_frame() {
            return Poll::Ready(Some(Ok(frame)));
        }
        match &mut self.rest {
            Rest::Body(body) => Pin::new(body).poll_frame(cx),
            Rest::Failed { error, is_flushed } => {
                if !std::mem::replace(is_flushed, true) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(error.take().map(Err))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.0.data.len() as u64;
        let Rest::Body(body) = &self.rest else {
            return SizeHint::default();
        };
        let rest = body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(held + rest.lower());
        if let Some(upper) = rest.upper() {
            hint.set_upper(held.saturating_add(upper));
        }
        hint
    }
}
