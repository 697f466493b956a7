//! A kernel program whose constants are numbers in its instructions.
//!
//! User space sets `const volatile` variables before it loads a program, which reads them from a map of its own: the verifier knows their values,
//! but each stays an address of ten bytes and a load from it. Here the values are written into the instructions before the loader sees them; a
//! sixth of the shield's machine code goes.

mod code;
mod insns;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    mem::offset_of,
};

use libbpf_rs::{ObjectBuilder, OpenObject};
use object::{
    NativeEndian, elf,
    read::{
        SectionIndex,
        elf::{FileHeader as _, Rel as _, SectionHeader as _, Sym as _},
    },
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use code::Code;
use insns::Insn;

type Header = elf::FileHeader64<NativeEndian>;
type Section = elf::SectionHeader64<NativeEndian>;

/// Opens a program's object file with its constants as `constants` has them, the bytes of its section `.rodata`.
pub(crate) fn open(name: &str, file: &[u8], constants: &[u8]) -> Result<OpenObject, libbpf_rs::Error> {
    let written = write(file, constants).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
    let mut open = ObjectBuilder::default().name(name)?.open_memory(&written)?;
    // What is read by an index that is not known stays in the map.
    for mut map in open.maps_mut() {
        if map.name().as_encoded_bytes().ends_with(b".rodata") {
            map.set_initial_value(constants)?;
        }
    }
    Ok(open)
}

/// R_BPF_64_64: the address of a symbol into both halves of an instruction (Documentation/bpf/llvm_reloc.rst).
const ADDRESS: u32 = 1;
const INSN: usize = size_of::<Insn>();

/// The file with values instead of loads.
fn write(file: &[u8], constants: &[u8]) -> Result<Vec<u8>, String> {
    let order = NativeEndian;
    let text = |error: object::Error| error.to_string();
    let header = Header::parse(file).map_err(text)?;
    let sections = header.sections(order, file).map_err(text)?;
    let symbols = sections.symbols(order, file, elf::SHT_SYMTAB).map_err(text)?;
    let Some((of_constants, _)) = sections.section_by_name(order, b".rodata") else { return Ok(file.to_vec()) };
    if sections.section_by_name(order, b".BTF.ext").is_some_and(|(_, section)| is_relocated(section, file)) {
        return Err("the kernel's types decide about some of its instructions".to_owned());
    }
    let mut out = file.to_vec();
    for (index, section) in sections.enumerate() {
        let Some((relocations, _)) = section.rel(order, file).map_err(text)? else { continue };
        let of = SectionIndex(section.sh_info(order) as usize);
        let code = sections.section(of).map_err(text)?;
        if code.sh_flags(order) & u64::from(elf::SHF_EXECINSTR) == 0 {
            continue;
        }
        let bytes = code.data(order, file).map_err(text)?;
        let insns = bytes.chunks_exact(INSN).map(Insn::read_from_bytes).collect::<Result<Vec<_>, _>>();
        let insns = insns.map_err(|_| "instructions of another length")?;
        let functions = symbols
            .iter()
            .filter(|symbol| symbol.st_type() == elf::STT_FUNC && usize::from(symbol.st_shndx(order)) == of.0);
        let entries = functions.map(|function| function.st_value(order) as usize / INSN).collect();
        let (mut addresses, mut foreign) = (BTreeMap::new(), BTreeSet::new());
        for relocation in relocations {
            let at = relocation.r_offset(order) as usize / INSN;
            let symbol = symbols.symbol(object::SymbolIndex(relocation.r_sym(order) as usize)).map_err(text)?;
            let insn = insns.get(at).ok_or("a relocation of nothing")?;
            if relocation.r_type(order) == ADDRESS && usize::from(symbol.st_shndx(order)) == of_constants.0 {
                addresses.insert(at, symbol.st_value(order) as usize + insn.imm as usize);
            } else {
                foreign.insert(at);
            }
        }
        let ours: Vec<usize> = addresses.keys().copied().collect();
        let mut code_of = Code { insns, addresses, foreign, constants, entries };
        code_of.simplify();
        let at = code.sh_offset(order) as usize;
        out[at..][..bytes.len()].copy_from_slice(code_of.insns.as_bytes());
        let gone: BTreeSet<usize> = ours.into_iter().filter(|at| !code_of.addresses.contains_key(at)).collect();
        let kept =
            relocations.iter().filter(|relocation| !gone.contains(&(relocation.r_offset(order) as usize / INSN)));
        let kept: Vec<u8> = kept.flat_map(object::pod::bytes_of).copied().collect();
        out[section.sh_offset(order) as usize..][..kept.len()].copy_from_slice(&kept);
        let size = header.e_shoff(order) as usize + index.0 * size_of::<Section>() + offset_of!(Section, sh_size);
        out[size..][..8].copy_from_slice(&(kept.len() as u64).to_ne_bytes());
    }
    Ok(out)
}

/// True if instructions depend on the running kernel's types (`struct btf_ext_header` of libbpf: the last pair of its fields).
fn is_relocated(section: &Section, file: &[u8]) -> bool {
    let word =
        |bytes: &[u8], at: usize| bytes.get(at..at + 4).and_then(|b| Some(u32::from_ne_bytes(*b.first_chunk()?)));
    let Ok(bytes) = section.data(NativeEndian, file) else { return true };
    let Some(header) = word(bytes, 4) else { return true };
    header >= 32 && word(bytes, 28) != Some(0)
}
