//! Reads all stations again and again: sockets stay open, names and texts are kept.

use std::{collections::BTreeMap, io};

use nix::sys::socket::SockProtocol;
use sys::ethtool::Ethtool;

use super::{
    StackCounters,
    conntrack::Conntrack,
    nft,
    nft::RuleKey,
    nft_text,
    nic::Nics,
    owners::Owners,
    proto::Protocols,
    qdisc, sockets,
    unread::{Source, Unread},
};
use crate::{interface, netlink::Netlink, root::Root};

/// The texts of rules, or why there are none.
type Texts = Result<BTreeMap<RuleKey, String>, String>;

/// Reads the counters of the network namespace in which it was opened. The thread that reads must be in it as well, as the
/// text files are those of the reading thread.
#[derive(Debug)]
pub struct StackReader {
    route: io::Result<Netlink>,
    netfilter: io::Result<Netlink>,
    diag: io::Result<Netlink>,
    ethtool: Result<Ethtool, String>,
    nics: Nics,
    owners: Owners,
    /// The texts of the rules of one generation.
    texts: Option<(u32, Texts)>,
}

impl StackReader {
    /// Opens what is read later. What cannot be opened is said by each reading.
    pub fn open() -> Self {
        Self {
            route: Netlink::open(SockProtocol::NetlinkRoute),
            netfilter: Netlink::open(SockProtocol::NetlinkNetFilter),
            diag: Netlink::open(SockProtocol::NetlinkSockDiag),
            ethtool: Ethtool::open().map_err(|e| e.to_string()),
            nics: Nics::default(),
            owners: Owners::default(),
            texts: None,
        }
    }

    /// Reads everything now. From a saved copy only what its files tell.
    pub fn read(&mut self, root: &Root) -> StackCounters {
        let mut unread = Unread::default();
        let mut now = StackCounters::default();
        if root.is_live() {
            // Queues first, in the order in which a packet meets them: what passes meanwhile is counted further on.
            self.interfaces(&mut now, &mut unread);
        }
        match Protocols::read(root) {
            Ok(protocols) => now.protocols = protocols,
            Err(e) => unread.miss(Source::Protocols, e.to_string()),
        }
        match Conntrack::read(root) {
            Ok(conntrack) => now.conntrack = conntrack,
            Err(e) => unread.miss(Source::Conntrack, e.to_string()),
        }
        if root.is_live() {
            self.sockets(root, &mut now, &mut unread);
            self.rules(root, &mut now, &mut unread);
        } else {
            now.sockets = sockets::read_files(root);
        }
        (now.unread, now.missed) = (unread.notes, unread.missed);
        now
    }

    fn interfaces(&mut self, now: &mut StackCounters, unread: &mut Unread) {
        match self.route.as_mut().map_err(|e| copy(e)).and_then(interface::links) {
            Ok(links) => now.links = links,
            Err(e) => unread.miss(Source::Links, format!("the interfaces cannot be listed (RTM_GETLINK): {e}")),
        }
        match &mut self.ethtool {
            Ok(ethtool) => {
                let interfaces = now.links.iter().map(|(index, link)| (*index, link.name.as_str()));
                now.nics = self.nics.read(ethtool, interfaces, &mut unread.notes);
            }
            Err(e) => unread.notes.push(format!("the drivers' counters: {e}")),
        }
        match self.route.as_mut().map_err(|e| copy(e)).and_then(qdisc::read) {
            Ok(qdiscs) => now.qdiscs = qdiscs,
            Err(e) => unread.miss(Source::Qdiscs, format!("queueing disciplines cannot be listed (RTM_GETQDISC): {e}")),
        }
    }

    fn sockets(&mut self, root: &Root, now: &mut StackCounters, unread: &mut Unread) {
        now.sockets = match &mut self.diag {
            Ok(diag) => sockets::read(diag, root, unread),
            Err(e) => {
                unread
                    .notes
                    .push(format!("only UDP and raw sockets were read, from text files: no sock_diag here ({e})"));
                sockets::read_files(root)
            }
        };
        self.owners.name(&mut now.sockets);
    }

    fn rules(&mut self, root: &Root, now: &mut StackCounters, unread: &mut Unread) {
        let mut rules = match self.netfilter.as_mut().map_err(|e| copy(e)).and_then(nft::read) {
            Ok(rules) => rules,
            Err(e) => {
                unread.miss(
                    Source::Rules,
                    format!("netfilter's rules cannot be read (nfnetlink; it takes CAP_NET_ADMIN): {e}"),
                );
                return;
            }
        };
        if let Some(rules) = rules.as_mut().filter(|rules| !rules.rules.is_empty()) {
            if self.texts.as_ref().is_none_or(|(generation, _)| *generation != rules.generation) {
                self.texts = Some((rules.generation, nft_text::nft().map_err(|e| e.to_string())));
            }
            match self.texts.as_ref().map(|(_, texts)| texts) {
                Some(Ok(texts)) => {
                    for (key, rule) in &mut rules.rules {
                        rule.text = texts.get(key).cloned().unwrap_or_default();
                    }
                }
                Some(Err(e)) => unread.notes.push(format!("rules are shown without their text: `nft` fails: {e}")),
                None => {}
            }
        }
        let mut all = rules.clone().unwrap_or_default();
        nft_text::legacy(root, &mut all, unread);
        now.rules = if rules.is_some() || !all.rules.is_empty() { Some(all) } else { None };
    }
}

/// The same error again, for every reading.
fn copy(e: &io::Error) -> io::Error {
    e.raw_os_error().map_or_else(|| io::Error::from(e.kind()), io::Error::from_raw_os_error)
}
