//! The file that commands of other findings take.

use super::*;
use crate::doctor::facts::ProbeFailure;

fn find_of(plant: impl FnOnce(&mut Facts)) -> Vec<(String, String)> {
    let mut facts = healthy();
    facts.ca_file_fault = Some("is not in this directory".to_owned());
    plant(&mut facts);
    let found = find_faults(&facts).into_iter().filter(|one| one.what.starts_with("ca.pem"));
    found.map(|one| (one.what, one.fix.unwrap_or_default())).collect()
}

/// A command was proposed that failed, for its file was nowhere.
#[test]
fn a_bundle_that_a_command_takes_and_that_is_not_there_is_taken_from_where_it_is_registered() {
    let found = find_of(|facts| facts.validating = Ok(Vec::new()));
    let [(what, fix)] = found.as_slice() else { panic!("{found:?}") };
    assert!(what.contains("is not in this directory"), "{what}");
    let wanted = "kubectl get mutatingwebhookconfiguration queue.caldera.dev -o \
                  'jsonpath={.webhooks[0].clientConfig.caBundle}' | base64 -d > ca.pem";
    assert_eq!(fix, wanted);
}

#[test]
fn a_bundle_that_serves_no_more_is_not_taken_again() {
    let untrusted = |facts: &mut Facts| {
        let message = "failed calling webhook \"jobs.gate.caldera.dev\": x509: certificate signed by unknown authority";
        facts.binding_probe = Err(ProbeFailure { code: 500, message: message.to_owned() });
    };
    let nowhere = |facts: &mut Facts| {
        (facts.mutating, facts.validating, facts.interpreters) = (Ok(Vec::new()), Ok(Vec::new()), Ok(Vec::new()));
    };
    let plants: [fn(&mut Facts); 2] = [untrusted, nowhere];
    for plant in plants {
        let found = find_of(plant);
        let [(what, fix)] = found.as_slice() else { panic!("{found:?}") };
        assert!(what.contains("who signed the webhook's") && fix.contains("get secret caldera-webhook-cert"), "{what}");
    }
}

#[test]
fn where_no_command_takes_it_nothing_is_told_of_it() {
    assert_eq!(find_of(|_| ()), []);
}
