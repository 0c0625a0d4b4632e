//! Tests of the route tables.
//!
//! Invariants:
//! - time and connections are numbers here; nothing waits.

use troupemq_store::testing::Random;

use super::*;

const PERM_RW: i32 = PERM_READ | PERM_WRITE;

fn text(text: &str) -> Text {
    Text::from(text)
}

fn queues(perm: i32) -> TopicQueues {
    TopicQueues { read_queues: 4, write_queues: 4, perm, sys_flag: 0 }
}

fn version(counter: i64) -> DataVersion {
    DataVersion { counter, state_version: 0, timestamp: 7 }
}

fn topics(names: &[&str]) -> Vec<(Text, TopicQueues)> {
    names.iter().map(|name| (text(name), queues(PERM_RW))).collect()
}

/// Broker `b` of cluster `c` under an id and address, with two topics.
fn broker(id: i64, address: &str) -> Registration {
    Registration {
        cluster: text("c"),
        name: text("b"),
        id,
        address: text(address),
        ha_address: text(&format!("{address}2")),
        version: version(1),
        topics: topics(&["t", "u"]),
        ..Registration::default()
    }
}

fn at(address: &str) -> BrokerAddress {
    BrokerAddress { cluster: text("c"), address: text(address) }
}

fn accepted() -> Registered {
    Registered::Accepted { master: None }
}

fn perm_of(tables: &RouteTables, topic: &str) -> i32 {
    tables.route(topic, false).unwrap().queues["b"].perm
}

/// Everything that must hold between the tables, whatever happened.
fn check(tables: &RouteTables) {
    let mut addresses = 0;
    for (name, entry) in &tables.brokers {
        assert!(!entry.addresses.is_empty(), "{name} without address");
        assert!(tables.clusters[&entry.cluster].contains(name));
        for address in entry.addresses.values() {
            let key = BrokerAddress { cluster: entry.cluster.clone(), address: address.clone() };
            assert!(tables.liveness.get(&key).is_some(), "{key:?} is dead");
        }
        addresses += entry.addresses.len();
    }
    assert_eq!(addresses, tables.liveness.len());
    let named: usize = tables.clusters.values().map(BTreeSet::len).sum();
    assert_eq!(named, tables.brokers.len());
    for (topic, brokers) in &tables.topics {
        assert!(!brokers.is_empty(), "{topic} without broker");
        assert!(brokers.keys().all(|name| tables.brokers.contains_key(name)));
    }
    assert_eq!(tables.pairs, tables.topics.values().map(BTreeMap::len).sum::<usize>());
}

#[test]
fn a_registered_broker_has_routes_and_stands_in_its_cluster() {
    let mut tables = RouteTables::default();
    assert_eq!(tables.register(broker(0, "h:1"), LinkId(1), 0), accepted());
    let route = tables.route("t", false).unwrap();
    assert_eq!(route.queues["b"], queues(PERM_RW));
    assert_eq!(route.brokers["b"].addresses[&0], "h:1");
    assert_eq!(tables.route("x", false), None);
    assert_eq!(tables.topics_of_cluster("c"), ["t", "u"]);
    assert_eq!(tables.topics_of_cluster("d"), [] as [Text; 0]);
    assert_eq!(tables.system_topics(), (vec![text("c"), text("b")], Some(text("h:1"))));
    check(&tables);
}

#[test]
fn the_first_registration_of_an_id_has_to_be_complete() {
    let mut tables = RouteTables::default();
    let one_topic = Registration { topics: topics(&["n"]), version: version(2), ..broker(0, "h:1") };
    assert_eq!(tables.register(one_topic.clone(), LinkId(1), 0), Registered::Incomplete);
    assert!(tables.brokers().is_empty() && tables.clusters.is_empty());
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    assert_eq!(tables.register(one_topic, LinkId(1), 0), accepted());
    assert_eq!(tables.topics(), ["n", "t", "u"], "topics that are not named stay");
    check(&tables);
}

#[test]
fn a_change_counts_only_with_another_version() {
    let mut tables = RouteTables::default();
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    let read_only = vec![(text("t"), queues(PERM_READ)), (text("n"), queues(PERM_READ))];
    let same = Registration { topics: read_only.clone(), ..broker(0, "h:1") };
    tables.register(same, LinkId(1), 0);
    assert_eq!(perm_of(&tables, "t"), PERM_RW);
    assert_eq!(perm_of(&tables, "n"), PERM_READ, "what the broker did not have is entered");
    let newer = Registration { topics: read_only, version: version(2), ..broker(0, "h:1") };
    tables.register(newer, LinkId(1), 0);
    assert_eq!(perm_of(&tables, "t"), PERM_READ);
    assert_eq!(tables.version(&at("h:1")), Some(version(2)));
}

#[test]
fn a_wiped_write_permission_stays_wiped_until_the_topics_change() {
    let mut tables = RouteTables::default();
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    assert_eq!(tables.wipe_write_perm("nobody"), 0);
    assert_eq!(tables.wipe_write_perm("b"), 2);
    tables.register(broker(0, "h:1"), LinkId(1), 30_000);
    assert_eq!(perm_of(&tables, "t"), PERM_READ);
    assert_eq!(tables.add_write_perm("b"), 2);
    assert_eq!(perm_of(&tables, "t"), PERM_RW);
    tables.wipe_write_perm("b");
    tables.register(Registration { version: version(2), ..broker(0, "h:1") }, LinkId(1), 60_000);
    assert_eq!(perm_of(&tables, "t"), PERM_RW);
}

#[test]
fn topics_that_are_missing_go_only_where_that_is_wanted() {
    let mut tables = RouteTables::default();
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    let fewer = Registration { topics: topics(&["u", "v"]), version: version(2), ..broker(0, "h:1") };
    tables.register(fewer.clone(), LinkId(1), 0);
    assert_eq!(tables.topics(), ["t", "u", "v"]);
    tables.register(Registration { drops_missing: true, ..fewer }, LinkId(1), 0);
    assert_eq!(tables.topics(), ["u", "v"]);
    check(&tables);
}

#[test]
fn a_slave_learns_its_master_and_gives_no_topics() {
    let mut tables = RouteTables::default();
    assert_eq!(tables.register(broker(1, "s:1"), LinkId(2), 0), accepted(), "there is no master yet");
    assert_eq!(tables.topics(), [] as [Text; 0]);
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    let master = MasterOf { address: text("h:1"), ha_address: text("h:12") };
    let answer = tables.register(broker(1, "s:1"), LinkId(2), 0);
    assert_eq!(answer, Registered::Accepted { master: Some(master) });
    assert_eq!(tables.route("t", false).unwrap().brokers["b"].addresses.len(), 2);
    check(&tables);
}

#[test]
fn an_address_stands_under_one_id_and_one_name() {
    let mut tables = RouteTables::default();
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    tables.register(broker(1, "s:1"), LinkId(2), 0);
    tables.link_closed(LinkId(1));
    tables.register(broker(0, "s:1"), LinkId(2), 0);
    assert_eq!(tables.brokers()["b"].addresses, BTreeMap::from([(0, text("s:1"))]));
    check(&tables);
    tables.register(Registration { name: text("b2"), ..broker(0, "s:1") }, LinkId(3), 0);
    assert_eq!(tables.brokers().keys().collect::<Vec<_>>(), ["b2"]);
    check(&tables);
    tables.register(Registration { cluster: text("d"), name: text("b2"), ..broker(0, "s:1") }, LinkId(4), 0);
    assert_eq!(tables.clusters.keys().collect::<Vec<_>>(), ["d"]);
    check(&tables);
}

#[test]
fn of_two_that_claim_one_id_the_newer_state_wins() {
    let state = |state_version| DataVersion { state_version, ..version(1) };
    let mut tables = RouteTables::default();
    tables.register(Registration { version: state(5), ..broker(0, "h:1") }, LinkId(1), 0);
    let older = Registration { version: state(4), ..broker(0, "g:1") };
    assert_eq!(tables.register(older, LinkId(2), 0), Registered::Outdated);
    assert_eq!(tables.brokers()["b"].addresses[&0], "h:1");
    let newer = Registration { version: state(5), ..broker(0, "g:1") };
    assert_eq!(tables.register(newer, LinkId(2), 0), accepted());
    assert_eq!(tables.brokers()["b"].addresses[&0], "g:1");
    check(&tables);
    assert_eq!(tables.link_closed(LinkId(1)), [], "the replaced one removes nothing any more");
    assert!(tables.route("t", false).is_some());
}

#[test]
fn a_stale_end_never_removes_a_newer_registration() {
    let mut tables = RouteTables::default();
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    tables.register(broker(0, "h:1"), LinkId(2), 0);
    assert_eq!(tables.link_closed(LinkId(1)), []);
    assert!(!tables.unregister(&at("h:1"), "b", 0, LinkId(1)), "by the old connection");
    assert!(!tables.unregister(&at("h:1"), "b", 1, LinkId(2)), "under an id it does not have any more");
    assert!(!tables.unregister(&at("h:1"), "z", 0, LinkId(2)), "under another name");
    assert!(tables.route("t", false).is_some());
    assert!(tables.unregister(&at("h:1"), "b", 0, LinkId(2)));
    assert_eq!(tables.route("t", false), None);
    assert!(tables.clusters.is_empty() && tables.brokers().is_empty() && tables.liveness.is_empty());
    check(&tables);
}

#[test]
fn a_silent_broker_goes_after_its_time_and_a_sign_of_life_keeps_it() {
    let mut tables = RouteTables::default();
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    let quick = Registration { silence_max_ms: Some(10_000), ..broker(1, "s:1") };
    tables.register(quick, LinkId(2), 0);
    assert_eq!(tables.expire(10_000), []);
    assert_eq!(tables.expire(10_001), [(at("s:1"), LinkId(2))]);
    assert!(tables.heard(&at("h:1"), 100_000));
    assert!(!tables.heard(&at("s:1"), 100_000));
    assert_eq!(tables.expire(220_000), []);
    assert_eq!(tables.expire(220_001), [(at("h:1"), LinkId(1))]);
    assert_eq!(tables.topics(), [] as [Text; 0]);
    check(&tables);
}

#[test]
fn slaves_keep_the_queues_of_a_lost_master_and_may_act_as_one() {
    let acting = |id, address| Registration { acting_master: Some(true), ..broker(id, address) };
    let mut tables = RouteTables::default();
    tables.register(acting(0, "h:1"), LinkId(1), 0);
    tables.register(acting(2, "r:1"), LinkId(3), 0);
    tables.register(acting(1, "s:1"), LinkId(2), 0);
    assert_eq!(tables.route("t", true).unwrap().brokers["b"].addresses[&0], "h:1");
    tables.link_closed(LinkId(1));
    assert_eq!(perm_of(&tables, "t"), PERM_READ);
    let shown = tables.route("t", true).unwrap().brokers["b"].addresses.clone();
    assert_eq!(shown, BTreeMap::from([(0, text("s:1")), (2, text("r:1"))]));
    let as_is = tables.route("t", false).unwrap().brokers["b"].addresses.clone();
    assert_eq!(as_is, BTreeMap::from([(1, text("s:1")), (2, text("r:1"))]));
    let more = Registration { topics: topics(&["t", "n"]), version: version(2), ..acting(1, "s:1") };
    tables.register(more, LinkId(2), 0);
    assert_eq!(perm_of(&tables, "n"), PERM_READ, "the smallest slave gives topics, but nobody may write");
    check(&tables);
}

#[test]
fn a_slave_of_the_old_kind_keeps_the_write_permission() {
    let mut tables = RouteTables::default();
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    tables.register(broker(1, "s:1"), LinkId(2), 0);
    tables.link_closed(LinkId(1));
    assert_eq!(perm_of(&tables, "t"), PERM_RW);
    assert_eq!(tables.brokers()["b"].addresses, BTreeMap::from([(1, text("s:1"))]));
}

#[test]
fn a_topic_is_deleted_everywhere_or_in_one_cluster() {
    let mut tables = RouteTables::default();
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    let other = Registration { cluster: text("d"), name: text("e"), ..broker(0, "e:1") };
    tables.register(other, LinkId(2), 0);
    tables.delete_topic("t", Some("nowhere"));
    assert_eq!(tables.route("t", false).unwrap().queues.len(), 2);
    tables.delete_topic("t", Some("c"));
    assert_eq!(tables.route("t", false).unwrap().queues.keys().collect::<Vec<_>>(), ["e"]);
    tables.delete_topic("u", None);
    tables.delete_topic("u", None);
    assert_eq!(tables.topics(), ["t"]);
    check(&tables);
}

#[test]
fn a_topic_is_entered_on_known_brokers_only() {
    let mut tables = RouteTables::default();
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    let (known, unknown) = ((text("b"), queues(PERM_RW)), (text("z"), queues(PERM_RW)));
    assert!(tables.enter_topic(&text("n"), std::slice::from_ref(&known)));
    assert!(!tables.enter_topic(&text("m"), &[unknown, known]));
    assert_eq!(tables.topics(), ["n", "t", "u"]);
    check(&tables);
}

#[test]
fn full_tables_refuse_what_is_new_with_their_limit_and_take_what_they_know() {
    let mut tables = RouteTables { pairs_max: 4, ..RouteTables::default() };
    let other = |names: &[&str]| Registration { name: text("e"), topics: topics(names), ..broker(0, "e:1") };
    tables.register(broker(0, "h:1"), LinkId(1), 0);
    let full = Registered::Full { has: 2, new: 3, limit: 4 };
    assert_eq!(tables.register(other(&["t", "u", "v"]), LinkId(2), 0), full);
    assert_eq!((tables.brokers().len(), tables.topics()), (1, vec![text("t"), text("u")]));
    assert_eq!(tables.register(other(&["t", "u"]), LinkId(2), 0), accepted());
    assert_eq!(tables.register(broker(0, "h:1"), LinkId(1), 1), accepted(), "it is known");
    let read_only = [(text("b"), queues(PERM_READ))];
    assert!(tables.enter_topic(&text("t"), &read_only));
    assert!(!tables.enter_topic(&text("v"), &read_only), "no room");
    assert_eq!(perm_of(&tables, "t"), PERM_READ);
    tables.link_closed(LinkId(2));
    assert!(tables.enter_topic(&text("v"), &read_only), "there is room again");
    check(&tables);
}

#[test]
fn topics_are_found_by_the_bits_of_their_flag() {
    let flagged = |name: &str, sys_flag| (text(name), TopicQueues { sys_flag, ..queues(PERM_RW) });
    let mut tables = RouteTables::default();
    let topics = vec![flagged("n", 0), flagged("o", 1), flagged("s", 2), flagged("x", 3)];
    tables.register(Registration { topics, ..broker(0, "h:1") }, LinkId(1), 0);
    assert_eq!(tables.unit_topics(UnitTopics::OfUnit), ["o", "x"]);
    assert_eq!(tables.unit_topics(UnitTopics::Subscribed), ["s", "x"]);
    assert_eq!(tables.unit_topics(UnitTopics::SubscribedOfNoUnit), ["s"]);
}

#[test]
fn a_route_can_be_narrowed_to_a_zone() {
    let zoned = |name: &str, zone: &str, id| Registration {
        name: text(name),
        zone: Some(text(zone)),
        acting_master: Some(false),
        ..broker(id, &format!("{name}:1"))
    };
    let mut tables = RouteTables::default();
    tables.register(zoned("x", "East", 0), LinkId(1), 0);
    tables.register(zoned("y", "west", 0), LinkId(2), 0);
    tables.register(zoned("z", "west", 1), LinkId(3), 0);
    let mut route = tables.route("t", false).unwrap();
    route.keep_zone("EAST");
    assert_eq!(route.brokers.keys().collect::<Vec<_>>(), ["x", "z"]);
    assert_eq!(route.queues.keys().collect::<Vec<_>>(), ["x", "z"]);
}

#[test]
fn the_tables_fit_together_after_any_sequence_of_events() {
    for seed in 1..200_u64 {
        eprintln!("seed {seed}");
        let mut random = Random::seeded(seed);
        let mut tables = RouteTables::default();
        for now_ms in (0..200).map(|step| step * 1000) {
            let registration = random_registration(&mut random);
            let key = BrokerAddress {
                cluster: registration.cluster.clone(),
                address: registration.address.clone(),
            };
            let link = LinkId(random.below(6) as u64);
            match random.below(9) {
                0 => _ = tables.unregister(&key, &registration.name, registration.id, link),
                1 => _ = tables.link_closed(link),
                2 => _ = tables.expire(now_ms),
                3 => tables.delete_topic(&text("t"), Some("c0").filter(|_| random.below(2) == 0)),
                4 => _ = tables.enter_topic(&text("t"), &[(text("b1"), queues(PERM_RW))]),
                5 => _ = tables.heard(&key, now_ms),
                _ => _ = tables.register(registration, link, now_ms),
            }
            check(&tables);
        }
    }
}

fn random_registration(random: &mut Random) -> Registration {
    let names = ["t", "u", "v", "w"];
    let topics = names.into_iter().filter(|_| random.below(2) == 0).collect::<Vec<_>>();
    Registration {
        cluster: text(&format!("c{}", random.below(2))),
        name: text(&format!("b{}", random.below(3))),
        id: i64::try_from(random.below(3)).unwrap(),
        address: text(&format!("h:{}", random.below(4))),
        silence_max_ms: [None, Some(5000)][usize::from(random.below(2) == 0)],
        acting_master: [None, Some(false), Some(true)][random.below(3)],
        version: DataVersion {
            counter: i64::try_from(random.below(3)).unwrap(),
            state_version: i64::try_from(random.below(2)).unwrap(),
            timestamp: 0,
        },
        topics: self::topics(&topics),
        drops_missing: random.below(4) == 0,
        ..Registration::default()
    }
}
