//! The kernels of convolutions.

use super::{all_agree, emulated, kernels, runs_of, tolerance};
use std::collections::BTreeMap;
use std::fmt::Write;
use stepgraph::model::Activation;
use stepgraph::ops::{self, ConvGeometry, Epilogue, OpKind};
use stepgraph::select::cuda::{CustomKernel, KernelFile, Real};

const DATA: &str = include_str!("convolution.hpp");

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

/// C++ that runs the kernels of a convolution and of its gradients.
fn of_geometry(geometry: &ConvGeometry, real: Real, counts: &mut BTreeMap<&'static str, usize>) -> String {
    let g = geometry;
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
        let (number, tolerance) = (real.cpp(), tolerance(real));
        writeln!(text, "{{ Convolution<{number}, {kind_name}> one(\"{name}\", Window{{{window}}}, {tolerance});")
            .unwrap();
        text += &runs_of(&kind, real, is_emulated, counts);
        text.push_str("}\n");
    }
    text
}

#[test]
fn members_of_convolution_kernels_give_the_same_bits_and_the_plain_sums() {
    let templates = ["ConvGemm", "ConvSliced", "ConvDirect", "ConvDirectBwdW", "ConvThinForward", "ConvThinBwdW"];
    let runs = |real, counts: &mut _| geometries().iter().map(|g| of_geometry(g, real, counts)).collect();
    all_agree(KernelFile::Conv, DATA, runs, (&templates, 1));
}

#[test]
fn mistakes_in_convolution_kernels_are_found() {
    let Some(kernels) = kernels(KernelFile::Conv) else { return };
    let mistakes = [
        ("(w * s.sw - s.pw) * s.c", "w * s.sw * s.c", "differs from plain sums"),
        ("unit_rows = (int)((i64)Number<ANY, 8>(a) >> 32)", "unit_rows = this->ho", "differs from tf32"),
        ("i < 2 * s.rows * s.pitch", "i < 2 * s.rows * s.pitch + 9000", "a write beyond the shared memory"),
    ];
    let runs = of_geometry(&geometries()[1], Real::Tf32, &mut BTreeMap::new());
    assert!(emulated(&kernels, DATA, &runs).0);
    for (right, wrong, message) in mistakes {
        assert!(kernels.contains(right), "{right}");
        let (agreed, lines) = emulated(&kernels.replace(right, wrong), DATA, &runs);
        assert!(!agreed && lines.contains(message), "{wrong}: {lines}");
    }
}
