//! The examples, run as they are.
//!
//! Invariants:
//! - every file of `examples` stands here.

macro_rules! examples {
    ($($name:ident: $path:literal,)*) => {
        $(#[path = $path]
        mod $name;)*

        mod run {
            $(#[test]
            fn $name() {
                super::$name::main().expect("the example runs to its end");
            })*
        }

        /// Their names.
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

examples! {
    broadcast: "../../examples/broadcast.rs",
    dead_letters: "../../examples/dead_letters.rs",
    delay: "../../examples/delay.rs",
    embedded: "../../examples/embedded.rs",
    embedded_actix: "../../examples/embedded_actix.rs",
    load: "../../examples/load.rs",
    orderly: "../../examples/orderly.rs",
    producer: "../../examples/producer.rs",
    push_consumer: "../../examples/push_consumer.rs",
    request_reply: "../../examples/request_reply.rs",
    transaction: "../../examples/transaction.rs",
}

/// An example of so many lines is none any more.
const LINES_MAX: usize = 120;

#[test]
fn every_example_is_run_and_short() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(folder).expect("there are examples");
    let mut names: Vec<_> = files
        .map(|file| file.expect("a folder can be listed").path())
        .inspect(|path| {
            let lines = std::fs::read_to_string(path).expect("an example is text").lines().count();
            assert!(lines < LINES_MAX, "{} has {lines} lines", path.display());
        })
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    assert_eq!(names, NAMES);
}
