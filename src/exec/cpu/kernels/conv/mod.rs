//! Convolution (temporarily by the plain loops).
use super::super::call::KernelImpl;
use crate::lower::OpKind;
use crate::select::Isa;
pub fn resolve(_op: &OpKind, _isa: Isa, _threads: usize) -> Option<KernelImpl> { Some(super::reference::resolve::<f32>()) }
