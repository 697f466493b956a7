//! `evenkeel link check NODE`: what link sees, and what doctor finds over a real sshd.

use std::process::{Command, Output};

use serde_json::Value;
use testbed::{Bed, End, LinkNode, Sshd, ended, json, printed};

const EVENKEEL: &str = env!("CARGO_BIN_EXE_evenkeel");
const OWN: &str = "10.77.6.1";
const PEER: &str = "10.77.6.2";
const PORT: u16 = 2222;

fn link(end: &End, args: &[&str]) -> Output {
    end.run(|| Command::new(EVENKEEL).arg("link").args(args).output().unwrap())
}

#[test]
fn machines_are_queried_over_ssh_and_one_that_is_none_of_links_nodes_is_named() {
    let Some(()) = Sshd::can_run() else { return };
    let Some((bed, ends)) = Bed::pair("lnkchk") else { return };
    let [left, right] = &ends;
    left.address(&format!("{OWN}/24"));
    right.address(&format!("{PEER}/24"));
    let folder = bed.path("");
    Sshd::keys(&folder);
    let _daemon = Sshd::start(right, "right", PEER, PORT, &folder);
    let check = |more: &[&str]| {
        let options = Sshd::options(&folder, PORT);
        let mut args = vec!["check", "--program", EVENKEEL];
        args.extend(options.iter().map(String::as_str));
        args.extend(more);
        link(left, &args)
    };
    let peer = format!("root@{PEER}");

    // Without a broker of this node there is nothing that link sees.
    let output = check(&[&peer]);
    ended(&output, 1);
    assert!(printed(&output).contains("link serve"), "{}", printed(&output));

    let _brokers = LinkNode::pair(EVENKEEL, &bed, &ends, &[]);
    let output = check(&[&peer, "--json"]);
    let found = json(&output);
    assert_eq!(found["nodes"][0]["path_mtu"], 1500, "{found}");
    let machine = &found["machines"]["nodes"][0];
    assert_eq!(
        (&machine["node"], machine["report"]["kernel"].is_string()),
        (&Value::from(peer.clone()), true),
        "{found}"
    );
    assert_eq!(machine["report"]["role"], "cluster", "{found}");

    // One that no sshd serves is named, and the rest is told.
    let nobody = format!("root@{OWN}");
    let output = check(&[&peer, &nobody]);
    ended(&output, 3);
    let text = printed(&output);
    assert!(text.contains(&nobody) && text.contains("1 of 2 machines gave no report"), "{text}");
    assert!(text.contains("beta"), "{text}");
}
