//! Reads what `ibnetdiscover` prints of an InfiniBand fabric, with or without `-g`, `-f` and `-m`.
//!
//! Format (rdma-core, `infiniband-diags/ibnetdiscover.c`): a section for each switch, then for each channel adapter and
//! each router (`dump_topology`). After lines of the form `key=value` a section has a line with what it is, the number
//! of its ports, its GUID behind a letter for its kind, and its description (`out_switch_detail`, `out_ca_detail`).
//! Between them are tabs:
//!
//! ```text
//! Switch    36 "S-0002c902004ab3c8"        # "leaf 1" enhanced port 0 lid 1 lmc 0
//! Ca    1 "H-0002c903000f1a2e"        # "node-1 mlx5_0"
//! ```
//!
//! and then one for each port that is linked, with the other end's kind, GUID and port (`out_switch_port`,
//! `out_ca_port`); what follows `#` there is for people:
//!
//! ```text
//! [1]    "H-0002c903000f1a2e"[1](2c903000f1a2f)         # "node-1 mlx5_0" lid 4 4xEDR
//! [1](2c903000f1a2f)     "S-0002c902004ab3c8"[1]        # lid 4 lmc 0 "leaf 1" lid 1 4xEDR
//! ```
//!
//! So each link is there twice, and each end has a section: a link to what has none shows a text that was cut short.
//! The description of an adapter begins with its host, as `rdma-ndd` writes it (`%h %d`). One that does not, and the
//! aggregation node that a switch has in itself, is no host. Routers lead to other fabrics and count for nothing. All
//! other lines are ignored.

use std::collections::BTreeMap;

use super::{DiscoveryError, MOST_BYTES, fabric::Fabric, node_names::read_host_name, read_text};

/// How the adapter inside a switch is described that reduces messages on their way (SHARP): each switch has one, the
/// spines too.
const AGGREGATION: &str = "Aggregation Node";
/// The words for sections, with the letters of their GUIDs.
const SECTIONS: [(&str, u8); 4] = [("Switch", b'S'), ("Ca", b'H'), ("Rt", b'R'), ("???", b'?')];

/// Reads a fabric: switches by their GUIDs, hosts by the first words of their adapters' descriptions.
///
/// # Errors
/// [`DiscoveryError`] if it is too large, no text, cut short, or has no host.
pub fn read_ibnetdiscover(bytes: &[u8]) -> Result<Fabric, DiscoveryError> {
    let (mut sections, mut links) = (BTreeMap::new(), Vec::new());
    let mut section = None;
    for (line, number) in read_text(bytes, MOST_BYTES)?.lines().zip(1..) {
        let wrong = |why| DiscoveryError::Line { line: number, why };
        if let Some(kind) = section_kind(line) {
            let (id, rest) = take_id(line).ok_or_else(|| wrong("a section without a GUID"))?;
            let description = if kind == b'H' {
                take_quoted(rest).ok_or_else(|| wrong("an adapter without a description"))?
            } else {
                ""
            };
            sections.insert(id, description);
            section = Some(id);
        } else if line.starts_with('[') {
            let from = section.ok_or_else(|| wrong("a port before any switch or adapter"))?;
            let (to, rest) = take_id(line).ok_or_else(|| wrong("a port without the GUID of its other end"))?;
            if !rest.starts_with('[') {
                return Err(wrong("a port without the port of its other end"));
            }
            links.push((from, to));
        }
    }
    let mut fabric = Fabric::default();
    for (from, to) in links {
        let (Some(near), Some(far)) = (sections.get(from), sections.get(to)) else {
            return Err(DiscoveryError::CutShort { from: from.to_owned(), to: to.to_owned() });
        };
        match (is_switch(from), is_switch(to)) {
            (true, true) => fabric.link_switches(guid(from), guid(to)),
            (true, false) => link_adapter(&mut fabric, far, from),
            (false, true) => link_adapter(&mut fabric, near, to),
            (false, false) => {}
        }
    }
    if fabric.hosts().next().is_none() {
        return Err(DiscoveryError::NoNodes);
    }
    Ok(fabric)
}

fn link_adapter(fabric: &mut Fabric, description: &str, switch: &str) {
    let host = description.split_whitespace().next().and_then(read_host_name);
    if let Some(host) = host.filter(|_| !description.contains(AGGREGATION)) {
        fabric.link_host(&host, guid(switch));
    }
}

/// The letter of the section that a line begins: a word for it, and the number of ports.
fn section_kind(line: &str) -> Option<u8> {
    let (word, rest) = line.split_once(char::is_whitespace)?;
    let (_, kind) = SECTIONS.into_iter().find(|(known, _)| *known == word)?;
    rest.trim_start().starts_with(|c: char| c.is_ascii_digit()).then_some(kind)
}

/// The first text in quotes, which has to be a GUID behind a letter; and what follows it.
fn take_id(line: &str) -> Option<(&str, &str)> {
    let (id, rest) = line.split_once('"')?.1.split_once('"')?;
    let digits = id.get(2..)?;
    let is_id = SECTIONS.iter().any(|(_, kind)| id.as_bytes().first() == Some(kind))
        && id.as_bytes().get(1) == Some(&b'-')
        && digits.len() == 16
        && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then_some((id, rest))
}

/// The text between the first quote and the last one.
fn take_quoted(text: &str) -> Option<&str> {
    let text = text.split_once('"')?.1;
    text.rsplit_once('"').map(|(quoted, _)| quoted)
}

fn is_switch(id: &str) -> bool {
    id.starts_with('S')
}

fn guid(id: &str) -> &str {
    id.get(2..).unwrap_or_default()
}

#[cfg(test)]
mod tests;
