//! As much of gRPC as unary calls need: one message each way behind five bytes, and a status in the trailers.

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::{BodyExt, Full};
use prost::Message;

/// Longer messages are refused, as by gRPC's own servers.
pub const LONGEST: usize = 4 * 1024 * 1024;
/// What both ends say that they speak.
pub const CONTENT_TYPE: &str = "application/grpc";

/// How a call ended, where not well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (gRPC status {code})")]
pub struct Status {
    /// `google.rpc.Code`.
    pub code: u32,
    /// For people.
    pub message: String,
}

impl Status {
    /// The request is wrong, whatever the state of things.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { code: 3, message: message.into() }
    }

    /// It may work later.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { code: 14, message: message.into() }
    }

    fn internal(message: impl Into<String>) -> Self {
        Self { code: 13, message: message.into() }
    }

    /// The status that headers or trailers tell; `None` if they tell none.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
        let text = headers.get("grpc-message").and_then(|text| text.to_str().ok()).unwrap_or_default();
        Some(Self { code, message: unescaped(text) })
    }
}

/// A message as it is sent.
#[must_use]
pub fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(5 + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    bytes.extend(message.encode_to_vec());
    bytes.freeze()
}

/// The one message of a body.
///
/// # Errors
/// If it is compressed, cut, or no such message.
pub fn unframe<M: Message + Default>(body: &[u8]) -> Result<M, Status> {
    let (head, content) = body.split_at_checked(5).ok_or_else(|| Status::internal("the message is cut"))?;
    if head[0] != 0 {
        return Err(Status { code: 12, message: "compressed messages are not understood".to_owned() });
    }
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length != content.len() {
        return Err(Status::internal("the message is not as long as it says"));
    }
    M::decode(content).map_err(|error| Status::internal(format!("not the message that was expected: {error}")))
}

/// The answer to a call.
pub fn respond<M: Message>(answer: Result<M, Status>) -> Response<Body> {
    let (body, status) = match answer {
        Ok(message) => (frame(&message), Status { code: 0, message: String::new() }),
        Err(status) => (Bytes::new(), status),
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(status.code));
    if let Ok(message) = HeaderValue::from_str(&escaped(&status.message))
        && !status.message.is_empty()
    {
        trailers.insert("grpc-message", message);
    }
    let content = HeaderValue::from_static(CONTENT_TYPE);
    let mut response = if body.is_empty() {
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = trailers;
        response
    } else {
        Response::new(Body::new(Full::new(body).with_trailers(async { Some(Ok(trailers)) })))
    };
    response.headers_mut().insert(header::CONTENT_TYPE, content);
    response
}

/// Percent-encoded but for printable ASCII, as the protocol has it.
fn escaped(message: &str) -> String {
    let byte = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    message.bytes().map(byte).collect()
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let hex = more.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        (bytes, rest) = match hex.filter(|_| *first == b'%') {
            Some(byte) => ([bytes, vec![byte]].concat(), &more[2..]),
            None => ([bytes, vec![*first]].concat(), more),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::MaxAvailableReplicasResponse as Answer;

    #[test]
    fn a_message_comes_back_and_a_cut_one_does_not() {
        let sent = frame(&Answer { max_replicas: 7 });
        assert_eq!(&sent[..], [0, 0, 0, 0, 2, 8, 7]);
        assert_eq!(unframe::<Answer>(&sent).unwrap().max_replicas, 7);
        for bad in [&sent[..3], &sent[..6], &[1, 0, 0, 0, 2, 8, 7], &[0, 0, 0, 0, 2, 255, 255]] {
            assert!(unframe::<Answer>(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn messages_for_people_travel_in_headers() {
        for text in ["plain", "100 % of \u{e4}pfel\n", ""] {
            assert_eq!(unescaped(&escaped(text)), text);
            assert!(escaped(text).bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        }
        assert_eq!(unescaped("%zz%"), "%zz%");
    }
}
