//! Looking into a response without taking anything from it.

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody};
use reqwest::{Body, Response, ResponseBuilderExt as _};

/// Largest body that is looked into, in bytes: a problem document is far
/// smaller.
pub(super) const LIMIT: usize = 64 * 1024;

/// Reads a body that is no longer than [`LIMIT`], and gives back the response
/// as it was. `None` for a longer one, of which no more than the limit and one
/// chunk is held.
pub(super) async fn peek(mut response: Response) -> reqwest::Result<(Response, Option<Bytes>)> {
    let mut begun = BytesMut::new();
    while let Some(chunk) = response.chunk().await? {
        begun.extend_from_slice(&chunk);
        if begun.len() > LIMIT {
            return Ok((resumed(response, begun.freeze()), None));
        }
    }
    let whole = begun.freeze();
    let response = with_body(response, |_| Body::from(whole.clone()));
    Ok((response, Some(whole)))
}

/// The response with what was read before what is still to come.
fn resumed(response: Response, begun: Bytes) -> Response {
    with_body(response, |rest| {
        let begun = stream::iter([Ok(Frame::data(begun))]);
        Body::wrap(StreamBody::new(begun.chain(BodyStream::new(rest))))
    })
}

fn with_body(response: Response, change: impl FnOnce(Body) -> Body) -> Response {
    // The one thing that does not survive the way through `http`'s type.
    let url = response.url().clone();
    let (mut parts, body) = http::Response::<Body>::from(response).into_parts();
    let holds_url = http::Response::builder().url(url).body(());
    if let Ok(holds_url) = holds_url {
        parts.extensions.extend(holds_url.into_parts().0.extensions);
    }
    http::Response::from_parts(parts, change(body)).into()
}
