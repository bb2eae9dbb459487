//! The ledger of the live controller equals that of a new one: the same objects, seen in any order or in one list, give
//! the same charges.

use std::collections::BTreeMap;

use caldera_controller::{
    decide::Controller,
    explain,
    observe::{Input, ObjectKind, read_object},
};
use jiff::Timestamp;

use crate::{history::History, workloads::RESOURCES};

/// What each queue's status says that it is charged, once nothing is written any more, is what the objects say.
pub fn must_be_what_the_objects_say(history: &History, now: Timestamp) {
    let mut controller = Controller::default();
    for source in ObjectKind::list_all() {
        let of = source.api_resource();
        for mut object in history.all("host", &of.kind) {
            // Two groups have a Job.
            let group =
                object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
            if group.is_none_or(|group| group == of.group) {
                (object["apiVersion"], object["kind"]) = (of.api_version.clone().into(), of.kind.clone().into());
                let input = read_object(source, object).unwrap();
                input.into_iter().for_each(|input| controller.observe(input, now));
            }
        }
        controller.observe(Input::Listed(source), now);
    }
    explain::decide_without_writing(&mut controller, now);
    let mut charged: BTreeMap<(String, String), String> = BTreeMap::new();
    for view in explain::list_queues(&controller) {
        for amounts in view.amounts {
            charged.insert((view.name.to_string(), amounts.resource.to_string()), amounts.used.to_string());
        }
    }
    for queue in history.all("host", "Queue") {
        let name = queue["metadata"]["name"].as_str().unwrap();
        for resource in RESOURCES {
            let said = queue["status"]["allocated"][resource].as_str().unwrap_or("0");
            let fresh = charged.get(&(name.to_owned(), resource.to_owned())).map_or("0", String::as_str);
            assert_eq!(said, fresh, "{name}: {resource} in the status, and what the objects say: {queue}");
        }
    }
}
