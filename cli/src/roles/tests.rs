use super::*;

#[test]
fn the_controllers_account_is_the_one_that_is_trusted_by_name() {
    assert_eq!(name_account("controller"), caldera_crds::trusted::CONTROLLER_ACCOUNT);
}

#[test]
fn every_kind_that_can_be_queued_may_be_followed() {
    for kind in caldera_crds::workload::WorkloadKind::ALL {
        let resource = kind.api_resource();
        let is_granted =
            |(group, resources, _): &Rule| *group == resource.group && resources.contains(&resource.plural.as_str());
        assert!(WORKLOADS.iter().any(is_granted), "{kind:?}");
    }
}

fn rules(granted: &Granted) -> Vec<(String, Value)> {
    let all = build_component_roles(granted);
    let of = |object: &Value| {
        let place = object["metadata"]["namespace"].as_str().unwrap_or("everywhere").to_owned();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut rules = object["rules"].as_array().cloned().unwrap_or_default();
        rules.retain(|rule| rule["nonResourceURLs"].is_null());
        rules.into_iter().map(move |rule| (format!("{name} {place}"), rule))
    };
    all.iter().flat_map(of).collect()
}

fn has(list: &Value, word: &str) -> bool {
    list.as_array().unwrap().iter().any(|one| one == word)
}

#[test]
fn secrets_and_leases_are_granted_in_a_namespace_and_read_by_name() {
    let granted = Granted { registers: true, member_secrets: vec!["m1".to_owned()] };
    for (role, rule) in rules(&granted) {
        assert!(!has(&rule["verbs"], "*") && !has(&rule["resources"], "*"), "{role} {rule}");
        assert_eq!(rule["apiGroups"].as_array().unwrap().len(), 1, "{role} {rule}");
        if has(&rule["resources"], "secrets") || has(&rule["resources"], "leases") {
            assert!(!role.ends_with("everywhere"), "{role} {rule}");
            let is_named = rule["resourceNames"].is_array() || rule["verbs"] == json!(["create"]);
            // Collectors have a lease for each member.
            assert!(is_named || role == "caldera-inventory caldera-system", "{role} {rule}");
            assert!(!has(&rule["verbs"], "list") && !has(&rule["verbs"], "update"), "{role} {rule}");
        }
    }
}

#[test]
fn configurations_of_webhooks_are_changed_only_where_that_is_asked_for_and_only_ours() {
    let about = |granted: &Granted| {
        let all = rules(granted);
        all.into_iter()
            .filter(|(_, rule)| rule["resources"].to_string().contains("webhookconfigurations"))
            .collect::<Vec<_>>()
    };
    assert_eq!(about(&Granted::default()), []);
    for (role, rule) in about(&Granted { registers: true, ..Granted::default() }) {
        let verbs = json!(["create", "get", "patch"]);
        assert_eq!((role.as_str(), &rule["verbs"]), ("caldera-webhook everywhere", &verbs));
        assert!(["caldera", "queue.caldera.dev"].iter().any(|name| rule["resourceNames"] == json!([name])));
    }
}

#[test]
fn of_workloads_jobs_alone_are_written_and_by_the_controller_alone() {
    let groups = ["batch.volcano.sh", "apps", "batch"];
    for (role, rule) in rules(&Granted::default()) {
        let is_workload = groups.iter().any(|group| has(&rule["apiGroups"], group)) || has(&rule["resources"], "pods");
        let reads = |verb: &Value| ["get", "list", "watch"].iter().any(|read| verb == read);
        if is_workload && !rule["verbs"].as_array().unwrap().iter().all(reads) {
            assert_eq!(role, "caldera-controller everywhere", "{rule}");
            // Of Kubernetes' own those of CronJobs, which are made and deleted, and those that failed.
            let of_kubernetes = [
                json!({"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["patch"]}),
                json!({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete"]}),
                json!({"apiGroups": ["batch"], "resources": ["cronjobs/status"], "verbs": ["patch"]}),
            ];
            let is_volcano = rule["apiGroups"] == json!(["batch.volcano.sh"]);
            assert!(is_volcano || of_kubernetes.contains(&rule), "{rule}");
        }
    }
}

#[test]
fn no_role_writes_what_is_kept_for_a_time() {
    let about = |(_, rule): &(String, Value)| has(&rule["resources"], "capacityreservations");
    let rules: Vec<_> = rules(&Granted::default()).into_iter().filter(about).collect();
    assert!(!rules.is_empty());
    for (role, rule) in rules {
        let verbs = rule["verbs"].as_array().unwrap();
        assert!(verbs.iter().all(|verb| READ.contains(&verb.as_str().unwrap())), "{role} {rule}");
    }
}

#[test]
fn nobody_but_who_is_given_the_role_sees_what_state_a_component_is_in() {
    let all = build_component_roles(&Granted::default());
    let with_paths = all.iter().filter(|object| object["rules"].to_string().contains("nonResourceURLs"));
    let [role] = with_paths.collect::<Vec<_>>()[..] else { panic!("one role has paths") };
    assert_eq!(role["metadata"]["name"], "caldera-state-reader");
    assert_eq!(role["rules"], json!([{"nonResourceURLs": ["/debug/state"], "verbs": ["get"]}]));
    assert!(role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"].is_null());
    assert!(all.iter().all(|object| object["roleRef"]["name"] != "caldera-state-reader"));
}

#[test]
fn a_shadow_reads_what_a_controller_reads_and_writes_its_report_alone() {
    let all = build_shadow_roles(&[]);
    let rules: Vec<&Value> = all.iter().flat_map(|object| object["rules"].as_array().into_iter().flatten()).collect();
    let writes = rules.iter().filter(|rule| {
        let reads = |verb: &Value| READ.iter().any(|read| verb == read);
        !rule["verbs"].as_array().unwrap().iter().all(reads)
    });
    let report = json!({
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["caldera-shadow"],
        "verbs": ["get", "create", "patch"],
    });
    assert_eq!(writes.collect::<Vec<_>>(), [&&report]);
    let follows = |resource: &str| rules.iter().any(|rule| has(&rule["resources"], resource));
    for resource in ["resourcebindings", "queues", "podgroups", "clusterinventories", "clusters", "hyperjobs"] {
        assert!(follows(resource), "{resource}");
    }
}

#[test]
fn who_only_looks_writes_nothing() {
    for (role, rule) in rules(&Granted::default()) {
        // To ask who somebody is, is a write that leaves nothing.
        let is_review = |(_, resources, _): &Rule| rule["resources"] == json!(resources);
        if REVIEWS.iter().any(is_review) {
            assert_eq!(rule["verbs"], json!(["create"]), "{role} {rule}");
            continue;
        }
        let looks =
            ["caldera-console ", "caldera-webhook ", "caldera-estimator ", "caldera-reader ", "caldera-member-reader "];
        if looks.iter().any(|name| role.starts_with(name)) {
            let reads = |verb: &Value| ["get", "list", "watch"].iter().any(|read| verb == read);
            assert!(rule["verbs"].as_array().unwrap().iter().all(reads), "{role} {rule}");
        }
    }
}
