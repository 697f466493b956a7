//! Sets of CPUs, in the two notations of the kernel: lists (`0-3,8`) and masks (`00000001,0000000f`).

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The highest CPU number accepted (the kernel's own limit is NR_CPUS = 8192 on x86-64).
pub const CPU_MAX: u32 = 8191;

/// A text that is not a set of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetError {
    #[error("`{0}` is not a CPU number or a range such as 0-3")]
    NotANumber(String),
    #[error("the range `{0}` runs backwards")]
    Backwards(String),
    #[error("CPU {0} is beyond the highest possible, {CPU_MAX}")]
    TooHigh(u64),
    #[error("`{0}` is not a CPU mask in hexadecimal words")]
    NotAMask(String),
}

/// A set of CPU numbers, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn single(cpu: u32) -> Self {
        Self::from_iter([cpu])
    }

    /// Reads a list such as `0-3,8`; the empty text is the empty set. `0-30:2` (a stride) is not accepted.
    pub fn parse_list(text: &str) -> Result<Self, CpuSetError> {
        let mut set = BTreeSet::new();
        let number = |t: &str| -> Result<u32, CpuSetError> {
            let n: u64 = t.trim().parse().map_err(|_| CpuSetError::NotANumber(t.trim().to_owned()))?;
            if n > u64::from(CPU_MAX) { Err(CpuSetError::TooHigh(n)) } else { Ok(n as u32) }
        };
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self(set));
        }
        for part in text.split(',') {
            match part.split_once('-') {
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(CpuSetError::Backwards(part.trim().to_owned()));
                    }
                    set.extend(first..=last);
                }
                None => {
                    set.insert(number(part)?);
                }
            }
        }
        Ok(Self(set))
    }

    /// Reads a mask such as `f` or `00000001,0000000f` (32-bit words, highest first; the kernel's `%*pb`).
    pub fn parse_mask(text: &str) -> Result<Self, CpuSetError> {
        let bad = || CpuSetError::NotAMask(text.trim().to_owned());
        let mut set = BTreeSet::new();
        for (word_index, word) in text.trim().rsplit(',').enumerate() {
            let word = u32::from_str_radix(word.trim(), 16).map_err(|_| bad())?;
            for bit in (0..32).filter(|b| word & (1 << b) != 0) {
                let cpu = word_index as u64 * 32 + bit;
                if cpu > u64::from(CPU_MAX) {
                    return Err(CpuSetError::TooHigh(cpu));
                }
                set.insert(cpu as u32);
            }
        }
        Ok(Self(set))
    }

    /// The mask in the kernel's notation, without leading empty words: `3`, `1,0000000f`. The empty set is `0`.
    pub fn to_mask(&self) -> String {
        let words = self.0.last().map_or(1, |&last| last as usize / 32 + 1);
        let mut mask = vec![0u32; words];
        for &cpu in &self.0 {
            mask[cpu as usize / 32] |= 1 << (cpu % 32);
        }
        let mut out = format!("{:x}", mask[words - 1]);
        for word in mask[..words - 1].iter().rev() {
            out.push_str(&format!(",{word:08x}"));
        }
        out
    }

    /// The set within a sentence: `CPU 0`, `CPUs 0-7`, `no CPU`.
    pub fn phrase(&self) -> String {
        match self.len() {
            0 => "no CPU".to_owned(),
            1 => format!("CPU {self}"),
            _ => format!("CPUs {self}"),
        }
    }

    /// True if the set holds `cpu`.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Adds `cpu`; false when it was there already.
    pub fn insert(&mut self, cpu: u32) -> bool {
        self.0.insert(cpu)
    }

    /// Takes `cpu` out; false when it was not there.
    pub fn remove(&mut self, cpu: u32) -> bool {
        self.0.remove(&cpu)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the set holds no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The CPUs that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The CPUs that are in either set.
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    /// The CPUs that are here and not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse_list(text)
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuSetError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse_list(&text)
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

/// The kernel's list notation: `0-3,8`; nothing for the empty set.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut text = String::new();
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.peek() == Some(&(last + 1)) {
                last += 1;
                cpus.next();
            }
            if !text.is_empty() {
                text.push(',');
            }
            match last - first {
                0 => text.push_str(&first.to_string()),
                _ => text.push_str(&format!("{first}-{last}")),
            }
        }
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_agree() {
        let set = CpuSet::parse_list("0-3,8,32-33").unwrap();
        assert_eq!(set.to_mask(), "3,0000010f");
        assert_eq!(CpuSet::parse_mask("00000003,0000010f\n").unwrap(), set);
        assert_eq!(set.to_string(), "0-3,8,32-33");
        assert_eq!(CpuSet::new().to_mask(), "0");
        assert_eq!(CpuSet::parse_list(" \n").unwrap(), CpuSet::new());
    }

    #[test]
    fn bad_lists_name_the_part() {
        assert_eq!(CpuSet::parse_list("0,x"), Err(CpuSetError::NotANumber("x".into())));
        assert_eq!(CpuSet::parse_list("3-1"), Err(CpuSetError::Backwards("3-1".into())));
        assert_eq!(CpuSet::parse_list("0-99999"), Err(CpuSetError::TooHigh(99_999)));
        assert_eq!(CpuSet::parse_mask("zz"), Err(CpuSetError::NotAMask("zz".into())));
    }
}
