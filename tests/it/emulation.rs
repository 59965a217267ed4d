//! Runs the text of convolution kernels on a CPU: all members of a family give the same bits, and agree with plain
//! sums.
//!
//! No GPU is needed, but a C++ compiler. Threads, barriers, copies and matrix instructions are emulated
//! (`emulation/machine.hpp`), so that a write beyond shared memory or a copy at an odd address fails too. What is not
//! emulated is the order of concurrent accesses, and the rounding of sums in matrix instructions.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;
use stepgraph::model::Activation;
use stepgraph::ops::{self, ConvGeometry, Epilogue, OpKind};
use stepgraph::select::cuda::{CustomKernel, KernelFile, KernelSpec, Real, custom_kernels};
use stepgraph::select::{Kernels, Target};

/// Instructions of the GPU, by a part of their assembly, and what emulates them.
const INSTRUCTIONS: [(&str, &str); 16] = [
    ("asm volatile(\"\"", "(void)0"),
    ("cvt.rn.bf16.f32", "out.bits = emulated_bf16(v)"),
    ("cvt.rn.bf16x2.f32", "out = emulated_bf16(first) | (u32)emulated_bf16(second) << 16"),
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

/// A geometry of square windows with the same padding on all sides.
fn geometry(n: usize, [h, w]: [usize; 2], [c, f]: [usize; 2], [k, s, p, d]: [usize; 4], groups: usize) -> ConvGeometry {
    let out = |len: usize| (len + 2 * p - (k - 1) * d - 1) / s + 1;
    let (kernel, stride, padding, dilation) = ([k; 2], [s; 2], [p; 2], [d; 2]);
    ConvGeometry { n, h, w, c, f, kernel, stride, padding, dilation, groups, ho: out(h), wo: out(w) }
}

fn geometries() -> Vec<ConvGeometry> {
    vec![
        geometry(3, [8, 8], [1, 32], [3, 1, 1, 1], 1),
        geometry(1, [23, 29], [1, 64], [3, 1, 1, 1], 1),
        geometry(3, [8, 8], [1, 16], [3, 1, 1, 1], 1),
        geometry(3, [13, 10], [1, 64], [5, 2, 0, 1], 1),
        geometry(2, [9, 11], [3, 32], [3, 1, 2, 2], 1),
        geometry(3, [6, 5], [4, 96], [3, 1, 1, 1], 1),
        geometry(2, [7, 6], [16, 24], [3, 1, 1, 1], 1),
        geometry(2, [7, 6], [19, 10], [3, 2, 1, 1], 1),
        geometry(2, [5, 6], [12, 12], [3, 1, 1, 1], 4),
        geometry(2, [6, 5], [16, 16], [3, 2, 1, 1], 16),
    ]
}

/// Kernels whose asynchronous copies or warpgroups are not emulated.
fn is_emulated(kernel: &CustomKernel) -> bool {
    !["ConvWgmmaBwdW", "ConvTapsBwdW"].contains(&kernel.spec.template)
}

/// C++ that runs the kernels of a convolution, all members of each; with the number of kernels by template.
fn runs_of(geometry: &ConvGeometry, real: Real, counts: &mut BTreeMap<&'static str, usize>) -> String {
    let (facts, g) = (Target::h200().as_cuda().unwrap(), geometry);
    let epilogue = Epilogue { bias: true, act: Some(Activation::Relu), ..Epilogue::default() };
    let kinds = [
        ("CONV_FORWARD", OpKind::Conv2d(ops::Conv2d { geometry: *g, epilogue })),
        ("CONV_BACKWARD_X", OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: *g, epilogue: Epilogue::default() })),
        ("CONV_BACKWARD_W", OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: *g, accumulate: false })),
    ];
    let mut text = String::new();
    for (kind_name, kind) in kinds {
        let window = [
            [g.n, g.h, g.w, g.c, g.f, g.kernel[0], g.kernel[1], g.stride[0]],
            [g.stride[1], g.padding[0], g.padding[1], g.dilation[0], g.dilation[1], g.groups, g.ho, g.wo],
        ];
        let window = window.as_flattened().iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let name = format!("{} {kind_name} {window}", real.name());
        let tolerance = if real == Real::F32 { 1e-5 } else { 0.01 };
        let number = real.cpp();
        writeln!(text, "{{ Convolution<{number}, {kind_name}> one(\"{name}\", Window{{{window}}}, {tolerance});")
            .unwrap();
        for kernel in custom_kernels(&kind, real, &facts).into_iter().filter(is_emulated) {
            *counts.entry(kernel.spec.template).or_default() += 1;
            let own = kernel.spec.clone();
            let others = [Kernels::General, Kernels::Widest].map(|kind| kernel.spec.clone().of(kind));
            let general: Vec<KernelSpec> = others.into_iter().filter(KernelSpec::is_general).collect();
            for (i, member) in [own].into_iter().chain(general).enumerate() {
                let numbers: Vec<String> = member.numbers().iter().map(|n| format!("{n}ull")).collect();
                writeln!(
                    text,
                    "one.run<{}, {}>(\"{}, member {i}\", {}, {{{}}}, {});",
                    member.ty(),
                    member.is_general(),
                    kernel.tail,
                    i == 0,
                    numbers.join(", "),
                    kernel.work_bytes
                )
                .unwrap();
            }
        }
        text.push_str("}\n");
    }
    text
}

/// The text of the kernels, with calls instead of assembly; `None` if there is no compiler for it.
fn kernels() -> Option<String> {
    if !cfg!(target_os = "linux") || Command::new("c++").arg("--version").output().is_err() {
        println!("skipped: a C++ compiler for Linux, `c++`, is not installed");
        return None;
    }
    let file = |name: &str| std::fs::read_to_string(format!("kernels/{name}")).unwrap();
    let files = [file("slots.cuh"), file("prelude.cuh"), file(KernelFile::Conv.name())];
    Some(without_assembly(&files.concat()))
}

/// Compiles and runs the kernels: whether all members agreed, and what was printed, a line for each member that did.
fn emulated(kernels: &str, runs: &str) -> (bool, String) {
    let (machine, convolution) = (include_str!("emulation/machine.hpp"), include_str!("emulation/convolution.hpp"));
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("kernels.cpp"), folder.path().join("kernels"));
    std::fs::write(&source, format!("{machine}{kernels}{convolution}int main() {{\n{runs}}}\n")).unwrap();
    let compiled = Command::new("c++").args(["-std=c++17", "-O1", "-w", "-o"]).arg(&program).arg(&source).output();
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = Command::new(&program).output().unwrap();
    (run.status.success(), String::from_utf8(run.stdout).unwrap())
}

#[test]
fn members_of_convolution_kernels_give_the_same_bits_and_the_plain_sums() {
    let Some(kernels) = kernels() else { return };
    let mut counts = BTreeMap::new();
    for real in [Real::F32, Real::Tf32, Real::Bf16] {
        let runs: String = geometries().iter().map(|g| runs_of(g, real, &mut counts)).collect();
        let (agreed, lines) = emulated(&kernels, &runs);
        assert!(agreed, "{lines}");
        assert_eq!(lines.lines().count(), runs.matches("one.run<").count(), "{lines}");
    }
    for template in ["ConvGemm", "ConvSliced", "ConvDirect", "ConvDirectBwdW", "ConvThinForward", "ConvThinBwdW"] {
        assert!(counts.get(template).is_some_and(|count| *count > 1), "{template}: {counts:?}");
    }
}

#[test]
fn mistakes_in_convolution_kernels_are_found() {
    let Some(kernels) = kernels() else { return };
    let mistakes = [
        ("(w * s.sw - s.pw) * s.c", "w * s.sw * s.c", "differs from plain sums"),
        ("unit_rows = (int)((i64)Number<ANY, 8>(a) >> 32)", "unit_rows = this->ho", "differs from tf32"),
        ("i < 2 * s.rows * s.pitch", "i < 2 * s.rows * s.pitch + 9000", "a write beyond the shared memory"),
    ];
    let runs = runs_of(&geometries()[1], Real::Tf32, &mut BTreeMap::new());
    assert!(emulated(&kernels, &runs).0);
    for (right, wrong, message) in mistakes {
        assert!(kernels.contains(right), "{right}");
        let (agreed, lines) = emulated(&kernels.replace(right, wrong), &runs);
        assert!(!agreed && lines.contains(message), "{wrong}: {lines}");
    }
}
