//! Tables as plain data to the bytes of the program's sections and the constants that say where what is in them.

use rules::tables::{
    AddressTable, COUNTERS, FieldTable, RuleAction, RuleEntry, RuleTables, VLAN_NONE, WORDS_MAX,
    prefixes::{PrefixLayout, section},
};

use super::room;
use crate::{link::XdpError, skel::shield::types::shield_rule};

/// LIMIT_TICKS_SHIFT of src/lib/limit.h.
const TICKS_SHIFT: u32 = 6;
/// Bits of enum shield_flags (src/filter/rules.h).
const SHADOW: u8 = 1;
const MANAGEMENT: u8 = 2;
const PER_SOURCE: u8 = 4;
const YIELDS: u8 = 8;
/// The number of fields, and of those in front of the ones that index a table.
const FIELDS: usize = 10;
pub(super) const KNOWN: usize = 9;
const ADDRESSES: usize = 2;
/// The class tables of the fields behind the addresses: their section and how many entries the program may reach.
const CLASS_TABLES: [(&str, usize); FIELDS - ADDRESSES] = [
    (".data.sh_sport", 1 << 16),
    (".data.sh_dport", 1 << 16),
    (".data.sh_kind", 512),
    (".data.sh_detail", 1024),
    (".data.sh_header", 256),
    (".data.sh_vlan", 8192),
    (".data.sh_length", 1 << 16),
    (".data.sh_known", 32),
];

/// SHIELD_COMMON_UDP and SHIELD_COMMON_DSCP of src/filter/rules.h, and the size of that table.
const COMMON: &str = ".data.sh_common";
const COMMON_UDP: usize = 256;
const COMMON_DSCP: usize = 257;
const COMMON_LEN: usize = COMMON_DSCP + 64;
/// Numbers of fields among those behind the addresses.
const KIND: usize = 2;
const DETAIL: usize = 3;
const HEADER: usize = 4;
const VLAN: usize = 5;

/// Classes that a field of a spare program has room for beyond those of its tables.
const SPARE_CLASSES: usize = 64;

const _: () = assert!(size_of::<shield_rule>() == 32);

pub(super) type Sections = Vec<(&'static str, Vec<u8>)>;

/// The constants of the program, and the contents of its sections.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) sections: Sections,
    pub(super) uses: [bool; FIELDS],
    pub(super) words: u64,
    pub(super) base: [u64; FIELDS],
    pub(super) mask: [u64; FIELDS],
    pub(super) absent: [u64; FIELDS],
    pub(super) rules_mask: u64,
    /// Some rule is a limit; some rule asks for a cookie; some of those yields.
    pub(super) limits: bool,
    pub(super) challenges: bool,
    pub(super) yields: bool,
    /// Fields that rules about TCP ask for, and rules about UDP, where rows are one word.
    pub(super) tcp_uses: [bool; FIELDS],
    pub(super) udp_uses: [bool; FIELDS],
    /// Some rule asks whether a source was seen before.
    pub(super) seen: bool,
    /// Rows of [`COMMON`] differ by DSCP.
    pub(super) dscp_matters: bool,
    /// Layouts of the prefixes of sources, of destinations, and of the protected ones.
    pub(super) prefixes: [PrefixLayout; 3],
}

impl Layout {
    /// # Errors
    /// [`crate::ProgramError::Setting`] for tables that contradict themselves: the program would read beyond them.
    pub(super) fn of(tables: &RuleTables) -> Result<Self, XdpError> {
        Self::build(tables, 0)
    }

    /// With room for more classes and prefixes; the sections of addresses are left empty.
    pub(super) fn roomy(tables: &RuleTables) -> Result<Self, XdpError> {
        Self::build(tables, SPARE_CLASSES)
    }

    fn build(tables: &RuleTables, spare: usize) -> Result<Self, XdpError> {
        let words = tables.words;
        check(tables)?;
        let mut layout = Self { words: words as u64, ..Default::default() };
        let rules = (words * 64).next_power_of_two();
        layout.rules_mask = rules as u64 - 1;
        layout.limits = tables.rules.iter().any(|r| r.action == RuleAction::Limit);
        layout.challenges = tables.rules.iter().any(|r| r.action == RuleAction::Challenge);
        layout.yields = tables.rules.iter().any(|r| r.yields);
        layout.seen = spare > 0 || uses_seen(tables);
        let mut bytes: Vec<u8> = tables.rules.iter().flat_map(rule_bytes).collect();
        bytes.resize(rules * size_of::<shield_rule>(), 0);
        layout.sections.push((".data.sh_rules", bytes));

        let addresses = [
            (&tables.source, ".data.shield_src", ".data.sh_source"),
            (&tables.destination, ".data.shield_dst", ".data.sh_dest"),
        ];
        for (i, (table, prefixes, rows)) in addresses.into_iter().enumerate() {
            let Some(table) = table else { continue };
            layout.prefixes[i] = match spare {
                0 => layout.put_prefixes(table, prefixes),
                _ => layout.put_room(table, prefixes),
            };
            let mut padded = Vec::new();
            layout.mask[i] = pad_rows(&table.rows, words, spare, &mut padded);
            layout.uses[i] = true;
            layout.put(rows, &padded);
        }
        if let Some(table) = &tables.protected {
            layout.prefixes[2] = layout.put_prefixes(table, ".data.shield_prot");
        }

        let mut rows = Vec::new();
        for (i, (table, (name, values))) in tables.fields.iter().zip(CLASS_TABLES).enumerate() {
            let Some(table) = table else { continue };
            let field = i + ADDRESSES;
            layout.base[field] = (rows.len() / stride(words)) as u64;
            layout.mask[field] = pad_rows(&table.rows, words, spare, &mut rows);
            layout.absent[field] = table.absent.into();
            layout.uses[field] = true;
            let mut classes = table.class_of.clone();
            classes.resize(values, table.absent);
            layout.sections.push((name, classes.iter().flat_map(|c| c.to_ne_bytes()).collect()));
        }
        if !rows.is_empty() {
            layout.put(".data.sh_rows", &rows);
        }
        if words == 1 {
            let common = common_rows(tables);
            let of_dscp = &common[COMMON_DSCP..];
            layout.dscp_matters = spare > 0 || of_dscp.iter().any(|row| *row != of_dscp[0]);
            layout.put(COMMON, &common);
            let of = |rows: &[u64]| match spare {
                0 => matching_fields(tables, &layout.uses, rows.iter().fold(0, |all, row| all | row)),
                // Rules that are not there yet may ask for anything.
                _ => layout.uses,
            };
            (layout.tcp_uses, layout.udp_uses) = (of(&common[..COMMON_UDP]), of(&common[COMMON_UDP..COMMON_DSCP]));
        }
        Ok(layout)
    }

    fn put(&mut self, name: &'static str, words: &[u64]) {
        self.sections.push((name, words.iter().flat_map(|w| w.to_ne_bytes()).collect()));
    }

    fn put_prefixes(&mut self, table: &AddressTable, name: &'static str) -> PrefixLayout {
        let (bytes, layout) = section(table.v4.as_deref(), table.v6.as_deref());
        self.sections.push((name, bytes));
        layout
    }

    fn put_room(&mut self, table: &AddressTable, name: &'static str) -> PrefixLayout {
        let (layout, bytes) = room::layout(table.v4.as_deref(), table.v6.as_deref());
        self.sections.push((name, vec![0; bytes]));
        layout
    }

    /// The sections of other tables for a program that was loaded with this layout, those of addresses left out; none: they do not
    /// fit.
    pub(super) fn refill(&self, tables: &RuleTables) -> Result<Option<Sections>, XdpError> {
        check(tables)?;
        let words = self.words as usize;
        let has = |action| tables.rules.iter().any(|rule| rule.action == action);
        if tables.words > words
            || (has(RuleAction::Limit) && !self.limits)
            || (has(RuleAction::Challenge) && !self.challenges)
            || (tables.rules.iter().any(|rule| rule.yields) && !self.yields)
            || (uses_seen(tables) && !self.seen)
        {
            return Ok(None);
        }
        let mut sections = Vec::new();
        let mut bytes: Vec<u8> = tables.rules.iter().flat_map(rule_bytes).collect();
        bytes.resize((self.rules_mask as usize + 1) * size_of::<shield_rule>(), 0);
        sections.push((".data.sh_rules", bytes));
        let whole = vec![u64::MAX; tables.words];
        let mut rows = Vec::new();
        for (field, uses) in self.uses.iter().enumerate() {
            let (name, given) = match field {
                0 => (".data.sh_source", tables.source.as_ref().map(|table| &table.rows)),
                1 => (".data.sh_dest", tables.destination.as_ref().map(|table| &table.rows)),
                _ => ("", tables.fields[field - ADDRESSES].as_ref().map(|table| &table.rows)),
            };
            let classes = self.mask[field] as usize + 1;
            let given_classes = given.map_or(1, |rows| rows.len() / tables.words);
            if (!uses && given.is_some()) || given_classes > classes {
                return Ok(None);
            }
            if !uses {
                continue;
            }
            let of_field = widened(given.unwrap_or(&whole), tables.words, words, classes);
            if field < ADDRESSES {
                sections.push((name, of_field.iter().flat_map(|word| word.to_ne_bytes()).collect()));
                continue;
            }
            rows.extend(of_field);
            let (name, values) = CLASS_TABLES[field - ADDRESSES];
            let table = tables.fields[field - ADDRESSES].as_ref();
            let absent = table.map_or(0, |table| table.absent);
            if u64::from(absent) != self.absent[field] {
                return Ok(None);
            }
            let mut classes = table.map_or_else(Vec::new, |table| table.class_of.clone());
            classes.resize(values, absent);
            sections.push((name, classes.iter().flat_map(|class| class.to_ne_bytes()).collect()));
        }
        if !rows.is_empty() {
            sections.push((".data.sh_rows", rows.iter().flat_map(|word| word.to_ne_bytes()).collect()));
        }
        if words == 1 {
            sections.push((COMMON, common_rows(tables).iter().flat_map(|word| word.to_ne_bytes()).collect()));
        }
        Ok(Some(sections))
    }
}

/// True if packets that differ by their sources having been seen have different rules: the highest digit of what is known.
fn uses_seen(tables: &RuleTables) -> bool {
    const DIGIT: usize = 9;
    let differ = |classes: &[u16]| classes.iter().zip(classes.iter().skip(DIGIT)).any(|(a, b)| a != b);
    tables.fields[KNOWN - ADDRESSES].as_ref().is_some_and(|table| differ(&table.class_of))
}

/// Of the fields that are used those whose value matters to any of `rules`, where rows are one word.
fn matching_fields(tables: &RuleTables, uses: &[bool; FIELDS], rules: u64) -> [bool; FIELDS] {
    std::array::from_fn(|field| {
        let rows = match field {
            0 => tables.source.as_ref().map(|table| &table.rows),
            1 => tables.destination.as_ref().map(|table| &table.rows),
            _ => tables.fields[field - ADDRESSES].as_ref().map(|table| &table.rows),
        };
        // A rule that holds for every value of the field does not ask for it.
        uses[field] && rows.is_some_and(|rows| rows.iter().any(|row| row & rules != rules))
    })
}

/// The rows that packets without tags and fragments have for all fields but addresses, ports and length, joined: by TCP flags, of UDP, and
/// by DSCP. For rules of one word.
fn common_rows(tables: &RuleTables) -> Vec<u64> {
    let row = |field: usize, value: usize| {
        tables.fields[field].as_ref().map_or(u64::MAX, |table| {
            let class = table.class_of.get(value).unwrap_or(&table.absent);
            table.rows[usize::from(*class)]
        })
    };
    let whole = |protocol, detail| row(KIND, protocol) & row(DETAIL, detail) & row(VLAN, VLAN_NONE);
    let of_dscp: Vec<u64> = (0..64).map(|dscp| row(HEADER, dscp)).collect();
    // Where all are alike, the program does not look at them.
    let alike = of_dscp.iter().all(|row| *row == of_dscp[0]).then_some(of_dscp[0]);
    let mut rows: Vec<u64> = (0..256).map(|flags| whole(6, flags)).chain([whole(17, 768)]).collect();
    rows.iter_mut().for_each(|row| *row &= alike.unwrap_or(u64::MAX));
    rows.extend(of_dscp);
    debug_assert_eq!((rows.len(), COMMON_UDP + 1), (COMMON_LEN, COMMON_DSCP));
    rows
}

/// Rows of `words` words as a program of `to` words has them, `classes` of them.
fn widened(rows: &[u64], words: usize, to: usize, classes: usize) -> Vec<u64> {
    let mut wide = Vec::with_capacity(classes * stride(to));
    let mut row = vec![0; to];
    for narrow in rows.chunks_exact(words) {
        row[..words].copy_from_slice(narrow);
        push_row(&row, &mut wide);
    }
    wide.resize(classes * stride(to), 0);
    wide
}

fn push_row(row: &[u64], to: &mut Vec<u64>) {
    if row.len() > 1 {
        to.push(row.iter().enumerate().fold(0, |sum, (i, &word)| sum | u64::from(word != 0) << i));
    }
    to.extend_from_slice(row);
}

/// Words from one row to the next: with several words there is one in front that says which are not zero.
fn stride(words: usize) -> usize {
    if words == 1 { 1 } else { words + 1 }
}

/// Appends rows as the program has them and `spare` more, as many as the next power of two; gives that number less one.
fn pad_rows(rows: &[u64], words: usize, spare: usize, to: &mut Vec<u64>) -> u64 {
    let classes = (rows.len() / words + spare).max(1).next_power_of_two();
    let end = to.len() + classes * stride(words);
    rows.chunks_exact(words).for_each(|row| push_row(row, to));
    to.resize(end, 0);
    classes as u64 - 1
}

fn rule_bytes(rule: &RuleEntry) -> [u8; size_of::<shield_rule>()] {
    let flag = |on: bool, flag: u8| if on { flag } else { 0 };
    let (v4_len, v6_len) = rule.per_source.unwrap_or_default();
    let interval = (1_000_000_000u64 << TICKS_SHIFT) / rule.pps.max(1);
    let mut bytes = [0; size_of::<shield_rule>()];
    bytes[0] = match rule.action {
        RuleAction::Pass => 0,
        RuleAction::Drop => 1,
        RuleAction::Limit => 2,
        RuleAction::Challenge => 3,
    };
    bytes[1] = flag(rule.shadow, SHADOW)
        | flag(rule.management, MANAGEMENT)
        | flag(rule.per_source.is_some(), PER_SOURCE)
        | flag(rule.yields, YIELDS);
    bytes[2..4].copy_from_slice(&rule.counter.to_ne_bytes());
    bytes[4] = v4_len;
    bytes[5] = v6_len;
    bytes[6] = u8::from(!rule.shadow && !rule.yields && rule.expires_ns == 0 && rule.action != RuleAction::Limit);
    bytes[8..16].copy_from_slice(&rule.expires_ns.to_ne_bytes());
    bytes[16..24].copy_from_slice(&interval.to_ne_bytes());
    bytes[24..32].copy_from_slice(&interval.saturating_mul(rule.burst.max(1) - 1).to_ne_bytes());
    bytes
}

fn check(tables: &RuleTables) -> Result<(), XdpError> {
    let bad = |what: String| Err(XdpError::setting(format!("the shield's tables contradict themselves: {what}")));
    let words = tables.words;
    if !(1..=WORDS_MAX).contains(&words) || tables.rules.len() > words * 64 {
        return bad(format!("{} rules in rows of {words} words", tables.rules.len()));
    }
    for (n, rule) in tables.rules.iter().enumerate() {
        if usize::from(rule.counter) >= COUNTERS {
            return bad(format!("rule {n} counts under {}, but there are {COUNTERS} counters", rule.counter));
        }
        if rule.yields && rule.action != RuleAction::Challenge {
            return bad(format!("rule {n} yields, but is no challenge"));
        }
        if rule.action == RuleAction::Limit && (rule.pps == 0 || rule.burst == 0) {
            return bad(format!("rule {n} limits to {} packets/s, {} at once", rule.pps, rule.burst));
        }
        if rule.per_source.is_some_and(|(v4, v6)| v4 > 32 || v6 > 128) {
            return bad(format!("rule {n} tells sources apart by more bits than an address has"));
        }
    }
    let all = [&tables.source, &tables.destination];
    for (table, name) in all.into_iter().zip(["source", "destination"]) {
        if table.as_ref().is_some_and(|t| t.rows.len() % words != 0 || t.rows.is_empty()) {
            return bad(format!("the {name} has rows of other words"));
        }
    }
    for (table, (name, values)) in tables.fields.iter().zip(CLASS_TABLES) {
        let Some(FieldTable { class_of, absent, rows }) = table else { continue };
        let classes = rows.len() / words;
        if rows.len() % words != 0 || class_of.len() > values {
            return bad(format!("{name} has {} classes and {} words of rows", class_of.len(), rows.len()));
        }
        if class_of.iter().chain([absent]).any(|&class| usize::from(class) >= classes) {
            return bad(format!("{name} has a class without a row"));
        }
    }
    Ok(())
}
