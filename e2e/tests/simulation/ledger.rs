//! The ledger of the live controller equals that of a new one: the same objects, seen in any order or in one list, give
//! the same charges.

use std::collections::BTreeMap;

use caldera_controller::{
    explain,
    index::{Index, Source},
    read::Listed,
};
use jiff::Timestamp;

use crate::history::History;

/// What each queue's status says that it is charged, once nothing is written any more, is what the objects say.
pub fn must_be_what_the_objects_say(history: &History, now: Timestamp) {
    let mut index = Index::default();
    for source in Source::all() {
        let mut listed = Listed::new(source);
        let of = source.resource();
        for mut object in history.all("host", &of.kind) {
            // Two groups have a Job.
            let group =
                object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
            if group.is_none_or(|group| group == of.group) {
                (object["apiVersion"], object["kind"]) = (of.api_version.clone().into(), of.kind.clone().into());
                listed.push(object).unwrap();
            }
        }
        index.apply(listed.all(), now);
    }
    explain::settle(&mut index, now);
    let charged: BTreeMap<String, String> = explain::queues(&index)
        .into_iter()
        .map(|view| {
            let cores = view.amounts.iter().find(|amounts| amounts.resource.as_str() == "cpu");
            (view.name.to_string(), cores.map_or_else(|| "0".to_owned(), |amounts| amounts.used.to_string()))
        })
        .collect();
    for queue in history.all("host", "Queue") {
        let name = queue["metadata"]["name"].as_str().unwrap();
        let said = queue["status"]["allocated"]["cpu"].as_str().unwrap_or("0");
        let fresh = charged.get(name).map_or("0", String::as_str);
        assert_eq!(said, fresh, "{name}: the status, and what the objects say: {queue}");
    }
}
