//! The functions of cuDNN's backend interface that are used: descriptors that are destroyed on drop, with attributes
//! checked by type.
//!
//! Functions are looked up here, with statuses and notes as plain integers: a library newer than the bindings may
//! return values that are missing in their enumerations.

use crate::exec::cuda::error::CudaError;
use crate::exec::cuda::probe::{agrees, cudnn_version};
use crate::exec::cuda::shared_library::CUDNN;
use cudarc::cudnn::sys::{self, cudnnBackendAttributeType_t as Tag};
pub(super) use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Attr, cudnnBackendDescriptor_t as Raw, cudnnBackendDescriptorType_t as Kind,
    cudnnBackendHeurMode_t as Heuristic, cudnnDataType_t as DataType, cudnnPointwiseMode_t as Pointwise,
    cudnnReduceTensorOp_t as Reduction,
};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

type Status = i32;

/// The functions used, as `cudnn_graph.h` declares them.
pub(super) struct Api {
    create: unsafe extern "C" fn(Kind, *mut Raw) -> Status,
    destroy: unsafe extern "C" fn(Raw) -> Status,
    set: unsafe extern "C" fn(Raw, Attr, Tag, i64, *const c_void) -> Status,
    get: unsafe extern "C" fn(Raw, Attr, Tag, i64, *mut i64, *mut c_void) -> Status,
    finalize: unsafe extern "C" fn(Raw) -> Status,
    pub(super) execute: unsafe extern "C" fn(sys::cudnnHandle_t, Raw, Raw) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    last_error: unsafe extern "C" fn(*mut c_char, usize),
    pub(super) set_stream: unsafe extern "C" fn(sys::cudnnHandle_t, sys::cudaStream_t) -> Status,
    create_handle: unsafe extern "C" fn(*mut sys::cudnnHandle_t) -> Status,
    destroy_handle: unsafe extern "C" fn(sys::cudnnHandle_t) -> Status,
}

/// The function with this name (which ends in NUL).
///
/// # Safety
/// libcudnn is present, and `F` is the type of a pointer to that function.
unsafe fn symbol<F: Copy>(name: &str) -> Result<F, CudaError> {
    // SAFETY: the caller vouches for the library and the type; the library is never unloaded.
    let found = unsafe { sys::culib().get::<F>(name.as_bytes()) };
    found.map(|f| *f).map_err(|e| format!("{}: {e}", name.trim_end_matches('\0')).into())
}

impl Api {
    /// The functions and the library's version.
    pub(super) fn load() -> Result<(Self, usize), CudaError> {
        if !CUDNN.is_installed() {
            return Err("libcudnn is not installed".into());
        }
        agrees("cudnn", &cudnn_version()?);
        // SAFETY: the library is present, and each field has the type of the function it is named for.
        unsafe {
            let version: unsafe extern "C" fn() -> usize = symbol("cudnnGetVersion\0")?;
            let version = version();
            let api = Self {
                create: symbol("cudnnBackendCreateDescriptor\0")?,
                destroy: symbol("cudnnBackendDestroyDescriptor\0")?,
                set: symbol("cudnnBackendSetAttribute\0")?,
                get: symbol("cudnnBackendGetAttribute\0")?,
                finalize: symbol("cudnnBackendFinalize\0")?,
                execute: symbol("cudnnBackendExecute\0")?,
                error_string: symbol("cudnnGetErrorString\0")?,
                last_error: symbol("cudnnGetLastErrorString\0")?,
                set_stream: symbol("cudnnSetStream\0")?,
                create_handle: symbol("cudnnCreate\0")?,
                destroy_handle: symbol("cudnnDestroy\0")?,
            };
            Ok((api, version))
        }
    }

    /// An error that names the call, the status and cuDNN's message, if the status is not success.
    pub(super) fn check(&self, status: Status, call: impl Fn() -> String) -> Result<(), CudaError> {
        if status == 0 {
            return Ok(());
        }
        let mut message = [0 as c_char; 512];
        // SAFETY: the message is written within its length and closed by a NUL; names of statuses are static strings.
        let (name, detail) = unsafe {
            (self.last_error)(message.as_mut_ptr(), message.len());
            message[message.len() - 1] = 0;
            (CStr::from_ptr((self.error_string)(status)).to_string_lossy(), CStr::from_ptr(message.as_ptr()))
        };
        let detail = detail.to_string_lossy();
        let detail = detail.trim();
        let colon = if detail.is_empty() { "" } else { ": " };
        Err(CudaError::library(call(), status.cast_unsigned(), format!("{name} ({status}){colon}{detail}")))
    }
}

/// The library with a handle (null if plans are made for a GPU that does not exist here).
pub(super) struct Library {
    pub(super) api: Api,
    pub(super) handle: sys::cudnnHandle_t,
    /// The stream that the handle works on; 0 before the first call.
    pub(super) stream: AtomicUsize,
}

impl Library {
    /// The library with a handle on the GPU of the context that is current on this thread; and the library's version.
    pub(super) fn open() -> Result<(Arc<Self>, usize), CudaError> {
        let (api, version) = Api::load()?;
        let mut library = Self { api, handle: null_mut(), stream: AtomicUsize::new(0) };
        // SAFETY: cuDNN writes one pointer.
        let status = unsafe { (library.api.create_handle)(&raw mut library.handle) };
        library.api.check(status, || "cudnnCreate".into())?;
        Ok((Arc::new(library), version))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle belongs to this value. Every object that was made with it holds this library, so all
            // were dropped.
            let _ = unsafe { (self.api.destroy_handle)(self.handle) };
        }
    }
}

/// A type that attributes consist of.
///
/// # Safety
/// cuDNN reads and writes attributes of this tag as arrays of this type, and every bit pattern that it writes is valid
/// for the type.
pub(super) unsafe trait Value: Copy {
    const TAG: Tag;
}

macro_rules! values {
    ($($(#[$doc:meta])* $type:ty => $tag:ident;)*) => {$(
        // SAFETY: the table below pairs types with tags as `cudnn_graph.h` does; the types that are read are integers
        // and pointers.
        unsafe impl Value for $type {
            const TAG: Tag = Tag::$tag;
        }
    )*};
}

/// An address on the device.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Address(pub(super) u64);
/// A numerical note of an engine, as an integer.
#[derive(Clone, Copy, PartialEq)]
#[repr(transparent)]
pub(super) struct Note(pub(super) u32);
/// The type of an engine's knob, as an integer.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Knob(pub(super) u32);

values! {
    i64 => CUDNN_TYPE_INT64;
    f32 => CUDNN_TYPE_FLOAT;
    f64 => CUDNN_TYPE_DOUBLE;
    bool => CUDNN_TYPE_BOOLEAN;
    u8 => CUDNN_TYPE_CHAR;
    Raw => CUDNN_TYPE_BACKEND_DESCRIPTOR;
    Address => CUDNN_TYPE_VOID_PTR;
    Note => CUDNN_TYPE_NUMERICAL_NOTE;
    Knob => CUDNN_TYPE_KNOB_TYPE;
    Heuristic => CUDNN_TYPE_HEUR_MODE;
    DataType => CUDNN_TYPE_DATA_TYPE;
    Pointwise => CUDNN_TYPE_POINTWISE_MODE;
    Reduction => CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
    sys::cudnnHandle_t => CUDNN_TYPE_HANDLE;
    sys::cudnnConvolutionMode_t => CUDNN_TYPE_CONVOLUTION_MODE;
    sys::cudnnNanPropagation_t => CUDNN_TYPE_NAN_PROPOGATION;
}

/// A descriptor that is destroyed on drop.
pub(super) struct Descriptor {
    pub(super) raw: Raw,
    pub(super) library: Arc<Library>,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor was created by this library and is destroyed once; those that refer to it hold its
        // content.
        let _ = unsafe { (self.library.api.destroy)(self.raw) };
    }
}

impl Descriptor {
    pub(super) fn new(library: &Arc<Library>, kind: Kind) -> Result<Self, CudaError> {
        let mut raw = null_mut();
        // SAFETY: cuDNN writes one pointer.
        let status = unsafe { (library.api.create)(kind, &raw mut raw) };
        library.api.check(status, || format!("cudnnBackendCreateDescriptor({kind:?})"))?;
        Ok(Self { raw, library: Arc::clone(library) })
    }

    pub(super) fn set<T: Value>(&self, name: Attr, values: &[T]) -> Result<&Self, CudaError> {
        // SAFETY: the array lives through the call and holds as many values of the tag's type as are announced.
        let status =
            unsafe { (self.library.api.set)(self.raw, name, T::TAG, values.len() as i64, values.as_ptr().cast()) };
        self.library.api.check(status, || format!("cudnnBackendSetAttribute({name:?})"))?;
        Ok(self)
    }

    pub(super) fn finalize(self, what: &str) -> Result<Self, CudaError> {
        // SAFETY: the descriptor is alive.
        let status = unsafe { (self.library.api.finalize)(self.raw) };
        self.library.api.check(status, || format!("cudnnBackendFinalize({what})"))?;
        Ok(self)
    }

    /// Fills `out` from an attribute; returns the number of values of the attribute.
    pub(super) fn get<T: Value>(&self, name: Attr, out: &mut [T]) -> Result<usize, CudaError> {
        let mut count = 0;
        let at = if out.is_empty() { null_mut() } else { out.as_mut_ptr().cast() };
        // SAFETY: cuDNN writes at most as many values of the tag's type as are asked for, and the count.
        let status = unsafe { (self.library.api.get)(self.raw, name, T::TAG, out.len() as i64, &raw mut count, at) };
        self.library.api.check(status, || format!("cudnnBackendGetAttribute({name:?})"))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The single number of an attribute.
    pub(super) fn int(&self, name: Attr) -> Result<i64, CudaError> {
        let mut value = [0];
        self.get(name, &mut value)?;
        Ok(value[0])
    }

    /// The descriptors that an attribute contains, at most `most`.
    pub(super) fn children(&self, name: Attr, kind: Kind, most: usize) -> Result<Vec<Self>, CudaError> {
        let mut children = (0..most).map(|_| Self::new(&self.library, kind)).collect::<Result<Vec<_>, _>>()?;
        let mut raws: Vec<Raw> = children.iter().map(|c| c.raw).collect();
        children.truncate(self.get(name, &mut raws)?);
        Ok(children)
    }

    /// The number of values of an attribute. Not every attribute reports it.
    pub(super) fn count<T: Value>(&self, name: Attr) -> Result<usize, CudaError> {
        self.get::<T>(name, &mut [])
    }
}

// SAFETY: the library's functions may be called from any thread; its handle is used by one at a time, under the lock of
// the GPU it belongs to.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}
// SAFETY: a finalised descriptor is never changed; different descriptors are independent.
unsafe impl Send for Descriptor {}
// SAFETY: as above.
unsafe impl Sync for Descriptor {}
