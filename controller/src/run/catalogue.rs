//! Asks the catalogue where data is: one request at a time, within a time and a size, beside the loop.

use std::{collections::BTreeSet, sync::Arc};

use caldera_core::data_source::DataIdentity;
use caldera_runtime::client::{ClientError, WriteCounts, from_config};
use http_body_util::{BodyExt, Limited};
use kube::{Client, client::Body};
use tokio::sync::mpsc;

use crate::{
    catalogue::{Catalogue, CatalogueUrl, LARGEST_ANSWER, read_answer},
    observe::Input,
};

/// Asks for one piece of data after the other.
pub(super) struct CatalogueClient {
    catalogue: Catalogue,
    client: Client,
    inputs: mpsc::Sender<Input>,
}

impl CatalogueClient {
    pub(super) fn new(catalogue: Catalogue, inputs: mpsc::Sender<Input>) -> Result<Self, ClientError> {
        let server = catalogue.url.server();
        let url = server.parse().map_err(|source| ClientError::Address { server: server.to_owned(), source })?;
        let client = from_config(kube::Config::new(url), "controller", &WriteCounts::default())?;
        Ok(Self { catalogue, client, inputs })
    }

    /// Asks where data is; the answer comes as an input.
    pub(super) fn ask(&self, data: Arc<DataIdentity>) {
        let (client, inputs, Catalogue { url, timeout }) =
            (self.client.clone(), self.inputs.clone(), self.catalogue.clone());
        tokio::spawn(async move {
            let asked = ask_server(&client, &url, &data);
            let answer = tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| Err("no answer".to_owned()));
            inputs.send(Input::Located(answer)).await.unwrap_or_default();
        });
    }
}

/// The clusters that have the data; none where the catalogue does not know it.
async fn ask_server(client: &Client, url: &CatalogueUrl, data: &DataIdentity) -> Result<BTreeSet<String>, String> {
    let Some(path) = url.path_of(data) else { return Ok(BTreeSet::new()) };
    let request = http::Request::get(path).header(http::header::ACCEPT, "application/json");
    let request = request.body(Body::empty()).map_err(|error| error.to_string())?;
    let response = client.send(request).await.map_err(|error| error.to_string())?;
    match response.status() {
        http::StatusCode::OK => {}
        http::StatusCode::NOT_FOUND => return Ok(BTreeSet::new()),
        status => return Err(format!("it answers {status}")),
    }
    let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
    read_answer(&body.map_err(|error| error.to_string())?.to_bytes())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
        time::Duration,
    };

    use super::*;

    /// What is told after one question that is answered so, with the question's first line.
    async fn ask(answer: Option<&'static str>) -> (Result<BTreeSet<String>, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/{{system}}/{{name}}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4096];
            let read = stream.read(&mut asked).unwrap();
            match answer {
                Some(answer) => drop(stream.write_all(answer.as_bytes())),
                // It is silent until nobody waits any more.
                None => drop(stream.read(&mut [0; 1])),
            }
            String::from_utf8_lossy(&asked[..read]).lines().next().unwrap_or_default().to_owned()
        });
        let (inputs, mut received) = mpsc::channel(1);
        let timeout = if answer.is_some() { Duration::from_secs(60) } else { Duration::from_millis(50) };
        let client = CatalogueClient::new(Catalogue { url: url.parse().unwrap(), timeout }, inputs).unwrap();
        let data = DataIdentity { system: "hive".into(), name: "prod/users".into(), ..DataIdentity::default() };
        client.ask(Arc::new(DataIdentity { category: "table".into(), ..data }));
        let Some(Input::Located(answer)) = received.recv().await else { panic!("nothing is told") };
        (answer, server.join().unwrap())
    }

    #[tokio::test]
    async fn an_answer_names_clusters_and_404_is_none() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-length: 24\r\n\r\n{\"clusterNames\": [\"m2\"]}";
        let (answer, asked) = ask(Some(ok)).await;
        assert_eq!(answer, Ok(["m2".to_owned()].into()));
        assert_eq!(asked, "GET /v1/hive/prod%2Fusers HTTP/1.1");
        let (answer, _) = ask(Some("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")).await;
        assert_eq!(answer, Ok(BTreeSet::new()));
    }

    #[tokio::test]
    async fn any_other_answer_is_none_at_all() {
        let too_much = format!("HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n{}", " ".repeat(2_000_000));
        for (answer, why) in [
            ("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "it answers 500"),
            ("HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n", "it answers 302"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", "it is no answer"),
            (&*too_much.leak(), "length limit exceeded"),
        ] {
            let reported = ask(Some(answer)).await.0.unwrap_err();
            assert!(reported.contains(why), "{reported}");
        }
    }

    #[tokio::test]
    async fn who_does_not_answer_is_not_waited_for() {
        assert_eq!(ask(None).await.0, Err("no answer".to_owned()));
    }
}
