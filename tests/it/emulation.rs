//! Runs the text of kernels on a CPU: all members of a family give the same bits, and agree with plain sums.
//!
//! No GPU is needed, but a C++ compiler. Threads, barriers, copies and matrix instructions are emulated
//! (`emulation/machine.hpp`), so that a write beyond shared memory or a copy at an odd address fails too. What is not
//! emulated is the order of concurrent accesses, and the rounding of sums in matrix instructions.

mod convolutions;
mod losses;
mod products;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;
use stepgraph::ops::OpKind;
use stepgraph::select::cuda::{CustomKernel, KernelFile, KernelSpec, Real, custom_kernels};
use stepgraph::select::{Kernels, Target};

/// Instructions of the GPU, by a part of their assembly, and what emulates them.
const INSTRUCTIONS: [(&str, &str); 19] = [
    ("asm volatile(\"\"", "(void)0"),
    ("cvt.rn.bf16.f32", "out.bits = emulated_bf16(v)"),
    ("cvt.rn.bf16x2.f32", "w = emulated_bf16(low) | (u32)emulated_bf16(high) << 16"),
    ("max.NaN.bf16x2", "out = emulated_larger_pair(a, b)"),
    ("ex2.approx.ftz.f32", "out = exp2f(x)"),
    ("atom.acq_rel.gpu.global.add.u32", "drawn = (*ticket)++"),
    ("cvt.rn.tf32.f32", "out = emulated_tf32(v)"),
    ("cvt.rna.tf32.f32", "out = emulated_tf32(v)"),
    ("cp.async.cg.shared.global", "emulated_copy(to, from, 16, size)"),
    ("cp.async.ca.shared.global", "emulated_copy(to, from, BYTES, size)"),
    ("cp.async.commit_group", "(void)0"),
    ("cp.async.wait_group", "(void)0"),
    ("ldmatrix.sync.aligned.m8n8.x4.shared", "emulated_load_matrix(r, at, false)"),
    ("ldmatrix.sync.aligned.m8n8.x4.trans", "emulated_load_matrix(r, at, true)"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32", "emulated_mma<8>(c, a, b)"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16", "emulated_mma<16>(c, a, b)"),
    ("st.global.v4.f32", "memcpy(at, v, 16)"),
    ("st.global.v4.b32", "memcpy((void*)at, &words, 16)"),
    ("ld.shared.v4.s32", "memcpy(&out, at, 16)"),
];

/// The text of kernels with calls instead of assembly.
fn without_assembly(mut text: &str) -> String {
    let mut out = String::new();
    while let Some(start) = text.find("asm volatile(").into_iter().chain(text.find("asm(")).min() {
        let (mut depth, mut quoted, mut end) = (0, false, start);
        for (at, c) in text[start..].char_indices() {
            match c {
                '"' => quoted = !quoted,
                '(' if !quoted => depth += 1,
                ')' if !quoted => depth -= 1,
                _ => continue,
            }
            if c == ')' && !quoted && depth == 0 {
                end = start + at + 1;
                break;
            }
        }
        let statement = &text[start..end];
        let emulated = INSTRUCTIONS.iter().find(|(assembly, _)| statement.contains(assembly));
        out.push_str(&text[..start]);
        out.push_str(emulated.map_or("not_emulated()", |(_, call)| call));
        text = &text[end..];
    }
    out + text
}

/// C++ that runs the kernels of an operation, all members of each, with the object `one`; counts them by template.
fn runs_of(
    kind: &OpKind,
    real: Real,
    is_emulated: impl Fn(&CustomKernel) -> bool,
    counts: &mut BTreeMap<&'static str, usize>,
) -> String {
    let mut text = String::new();
    for kernel in custom_kernels(kind, real, &Target::h200().as_cuda().unwrap()).into_iter().filter(is_emulated) {
        *counts.entry(kernel.spec.template).or_default() += 1;
        let others = [Kernels::General, Kernels::Widest].map(|kind| kernel.spec.clone().of(kind));
        let general: Vec<KernelSpec> = others.into_iter().filter(KernelSpec::is_general).collect();
        for (i, member) in [kernel.spec.clone()].into_iter().chain(general).enumerate() {
            let numbers: Vec<String> = member.numbers().iter().map(|n| format!("{n}ull")).collect();
            let (ty, is_general, numbers) = (member.ty(), member.is_general(), numbers.join(", "));
            let (tail, work) = (&kernel.tail, kernel.work_bytes);
            writeln!(text, "one.run<{ty}, {is_general}>(\"{tail}, member {i}\", {}, {{{numbers}}}, {work});", i == 0)
                .unwrap();
        }
    }
    text
}

/// The text of a file of kernels, with calls instead of assembly; `None` if there is no compiler for it.
fn kernels(which: KernelFile) -> Option<String> {
    if !cfg!(target_os = "linux") || Command::new("c++").arg("--version").output().is_err() {
        println!("skipped: a C++ compiler for Linux, `c++`, is not installed");
        return None;
    }
    let file = |name: &str| std::fs::read_to_string(format!("kernels/{name}")).unwrap();
    let files = [file("slots.cuh"), file("prelude.cuh"), file(which.name())];
    Some(without_assembly(&files.concat()))
}

/// The largest error of a result in a type, relative to the largest result.
fn tolerance(real: Real) -> f64 {
    if real == Real::F32 { 1e-5 } else { 0.01 }
}

/// Asserts that all members of the kernels in a file agree, in three types. `runs` gives the C++ that runs them, and
/// counts them by template; of each of the `templates` there must be more than `least`.
fn all_agree(
    which: KernelFile,
    data: &str,
    runs: impl Fn(Real, &mut BTreeMap<&'static str, usize>) -> String,
    (templates, least): (&[&str], usize),
) {
    let Some(kernels) = kernels(which) else { return };
    let mut counts = BTreeMap::new();
    for real in [Real::F32, Real::Tf32, Real::Bf16] {
        let runs = runs(real, &mut counts);
        let (agreed, lines) = emulated(&kernels, data, &runs);
        assert!(agreed, "{lines}");
        assert_eq!(lines.lines().count(), runs.matches("one.run<").count(), "{lines}");
    }
    for template in templates {
        assert!(counts.get(template).is_some_and(|count| *count > least), "{template}: {counts:?}");
    }
}

/// Compiles and runs the kernels, with the C++ that makes their data. Returns whether all members agreed, and what was
/// printed: a line for each member that did.
fn emulated(kernels: &str, data: &str, runs: &str) -> (bool, String) {
    let (machine, members) = (include_str!("emulation/machine.hpp"), include_str!("emulation/members.hpp"));
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("kernels.cpp"), folder.path().join("kernels"));
    std::fs::write(&source, format!("{machine}{kernels}{members}{data}int main() {{\n{runs}}}\n")).unwrap();
    let compiled = Command::new("c++")
        .args(["-std=c++17", "-ffp-contract=off", "-O1", "-w", "-o"])
        .arg(&program)
        .arg(&source)
        .output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = Command::new(&program).output().unwrap();
    (run.status.success(), String::from_utf8(run.stdout).unwrap())
}
