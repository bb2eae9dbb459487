//! Lists in pages of few bytes, however large the objects are.
//!
//! A page is read as a whole, and takes many times its text until each object was read. How many objects are in one the
//! client says, how large they are says who makes them: 500 of the largest are 750 MB. Rule: of a page that is longer
//! than [`MOST_PAGE_BYTES`] the rest is not read, and it is asked for again with an eighth of the objects, down to one.
//! The pages after it have as many, and twice as many each time that one has less than a quarter of these bytes.
//! kube-apiserver lets `limit` change from page to page (`continue`).

use std::{
    collections::BTreeMap,
    mem,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use kube::client::Body;
use tower::{BoxError, Service};

/// 500 bindings or pods have fewer.
const MOST_PAGE_BYTES: usize = 8 << 20;

/// Makes the pages of lists smaller where objects are large.
#[derive(Clone)]
pub(crate) struct SmallPages<S> {
    inner: S,
    limits: Limits,
}

impl<S> SmallPages<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, limits: Limits::default() }
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl<S, B> Service<Request<Body>> for SmallPages<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The one that is ready.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let Some(asked) = find_limit(&request) else {
            let answer = inner.call(request);
            return Box::pin(async move {
                let answer = answer.await.map_err(Into::into)?;
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            });
        };
        let limits = self.limits.clone();
        let head = request.into_parts().0;
        let path = head.uri.path().to_owned();
        Box::pin(async move {
            let mut limit = limits.get(&path).min(asked);
            loop {
                let mut head = head.clone();
                head.uri = with_limit(&head.uri, limit);
                std::future::poll_fn(|context| inner.poll_ready(context)).await.map_err(Into::into)?;
                let answer = inner.call(Request::from_parts(head, Body::empty())).await.map_err(Into::into)?;
                let (head, body) = answer.into_parts();
                let most = if limit > 1 { MOST_PAGE_BYTES } else { usize::MAX };
                let Some(read) = read_at_most(body, most).await? else {
                    limit = (limit / 8).max(1);
                    limits.set(&path, limit);
                    continue;
                };
                if limit < asked && read.len() < MOST_PAGE_BYTES / 4 {
                    limits.set(&path, limit.saturating_mul(2));
                }
                return Ok(Response::from_parts(head, Full::new(read).map_err(|never| match never {}).boxed_unsync()));
            }
        })
    }
}

/// How many objects of each path are in a page, where they are few.
#[derive(Clone, Default)]
struct Limits(Arc<Mutex<BTreeMap<String, u32>>>);

impl Limits {
    /// Nobody asks for more.
    const MOST: u32 = 1 << 16;

    fn get(&self, path: &str) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied().unwrap_or(Self::MOST)
    }

    fn set(&self, path: &str, limit: u32) {
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match limit {
            Self::MOST.. => drop(limits.remove(path)),
            limit => drop(limits.insert(path.to_owned(), limit)),
        }
    }
}

/// How many objects a list asks for; `None` for what is no page of a list.
fn find_limit(request: &Request<Body>) -> Option<u32> {
    let query = request.uri().query().filter(|_| *request.method() == http::Method::GET)?;
    let mut is_watch = false;
    let mut limit = None;
    for parameter in query.split('&') {
        is_watch |= parameter.starts_with("watch=");
        limit = parameter.strip_prefix(LIMIT).and_then(|value| value.parse().ok()).or(limit);
    }
    limit.filter(|limit| *limit > 1 && !is_watch)
}

const LIMIT: &str = "limit=";

fn with_limit(uri: &Uri, limit: u32) -> Uri {
    let of = |parameter: &str| if parameter.starts_with(LIMIT) { format!("{LIMIT}{limit}") } else { parameter.into() };
    let query: Vec<String> = uri.query().unwrap_or_default().split('&').map(of).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{}?{}", uri.path(), query.join("&")).parse().ok().or(parts.path_and_query);
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// All of a body; `None` if it is longer.
async fn read_at_most<B>(body: B, most: usize) -> Result<Option<Bytes>, BoxError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Into::into)?.into_data() else { continue };
        if read.len() + data.len() > most {
            return Ok(None);
        }
        read.extend_from_slice(&data);
    }
    Ok(Some(read.freeze()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::StreamBody;
    use kube::Client;
    use serde_json::{Value, json};

    use super::*;
    use crate::watch::{api_resource, list_json};

    /// A server of so many objects of so many bytes each, which answers an object at a time: which limits it was asked
    /// for, and the bytes of each answer that were taken.
    #[derive(Clone)]
    struct Server {
        sizes: Arc<Vec<usize>>,
        asked: Arc<Mutex<Vec<Asked>>>,
    }

    type Asked = (u32, Arc<AtomicUsize>);

    impl Server {
        fn answer(&self, uri: &Uri) -> impl http_body::Body<Data = Bytes, Error = BoxError> + Send + use<> {
            let value = |name: &str| uri.query().unwrap().split('&').find_map(|it| it.strip_prefix(name)?.parse().ok());
            let (limit, first): (u32, usize) = (value(LIMIT).unwrap() as u32, value("continue=").unwrap_or(0));
            let taken = Arc::new(AtomicUsize::new(0));
            self.asked.lock().unwrap().push((limit, Arc::clone(&taken)));
            let end = self.sizes.len().min(first + limit as usize);
            let next = if end < self.sizes.len() { end.to_string() } else { String::new() };
            let head = format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"1","continue":"{next}"}},"items":["#);
            let objects = self.sizes[first..end].iter().enumerate().map(move |(at, size)| {
                let comma = if at == 0 { "" } else { "," };
                format!("{comma}{}", json!({"metadata": {"name": (first + at).to_string()}, "data": "x".repeat(*size)}))
            });
            let parts: Vec<String> = [head].into_iter().chain(objects).chain(["]}".to_owned()]).collect();
            let frames = parts.into_iter().map(move |part| {
                taken.fetch_add(part.len(), Ordering::Relaxed);
                Ok(http_body::Frame::data(Bytes::from(part)))
            });
            StreamBody::new(futures::stream::iter(frames))
        }
    }

    async fn list(sizes: Vec<usize>) -> (usize, Vec<u32>, usize) {
        let server = Server { sizes: Arc::new(sizes), asked: Arc::default() };
        let answering = server.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let body = answering.answer(request.uri());
            async move { Ok::<_, BoxError>(Response::new(body)) }
        });
        let client = Client::new(SmallPages::new(service), "default");
        let resource = api_resource("", "v1", "ConfigMap", "configmaps");
        let name = |object: Value| object["metadata"]["name"].as_str().map(str::to_owned);
        let listed = list_json(client, &resource, None, None, name).await.unwrap();
        let all: Vec<String> = (0..server.sizes.len()).map(|at| at.to_string()).collect();
        assert_eq!(listed, all, "each once, in order");
        let asked = server.asked.lock().unwrap();
        let most = asked.iter().map(|(_, taken)| taken.load(Ordering::Relaxed)).max().unwrap();
        (listed.len(), asked.iter().map(|(limit, _)| *limit).collect(), most)
    }

    #[tokio::test]
    async fn small_objects_come_as_many_as_were_asked_for() {
        let (listed, limits, _) = list(vec![1000; 1200]).await;
        assert_eq!((listed, limits), (1200, vec![500, 500, 500]));
    }

    #[tokio::test]
    async fn of_large_objects_no_page_is_read_beyond_the_limit_and_all_are_listed() {
        // The first ones are small: nobody knows before how large a page is.
        let sizes = [vec![100; 600], vec![1 << 20; 40], vec![100; 900]].concat();
        let (_, limits, most) = list(sizes).await;
        assert!(most <= MOST_PAGE_BYTES + (2 << 20), "{most}");
        assert_eq!(limits[..4], [500, 500, 62, 124], "{limits:?}");
        assert!(limits.iter().min() < Some(&8) && limits.last() > Some(&100), "{limits:?}");
        assert!(limits.len() < 40, "{limits:?}");
    }

    #[tokio::test]
    async fn one_object_may_be_larger_than_a_page() {
        let (_, limits, _) = list(vec![10, MOST_PAGE_BYTES + 1, 10]).await;
        assert_eq!(limits[..4], [500, 62, 7, 1], "{limits:?}");
    }

    #[test]
    fn only_pages_of_lists_are_bounded() {
        let limit = |method: &str, uri: &str| {
            find_limit(&Request::builder().method(method).uri(uri).body(Body::empty()).unwrap())
        };
        assert_eq!(limit("GET", "/api/v1/pods?&limit=500&continue=x"), Some(500));
        assert_eq!(limit("GET", "/api/v1/pods?watch=true&limit=500"), None);
        assert_eq!(limit("GET", "/api/v1/pods?limit=1"), None);
        assert_eq!(limit("GET", "/api/v1/pods"), None);
        assert_eq!(limit("DELETE", "/api/v1/pods?limit=500"), None);
    }
}
