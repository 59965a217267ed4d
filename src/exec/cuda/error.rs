//! Errors of this program on a GPU, of the driver and of NVIDIA's libraries.

use cudarc::driver::result::DriverError;
use thiserror::Error;

/// A failure on a GPU or in one of its libraries. The operation of the step that it belongs to is added by
/// [`ExecError::Device`](crate::exec::ExecError::Device).
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CudaError {
    /// A call of the driver failed.
    #[error("{call}: {message}")]
    Driver { call: &'static str, code: u32, message: String },
    /// A call of cuBLASLt, cuDNN or NVRTC failed.
    #[error("{call}: {message}")]
    Library { call: String, code: u32, message: String },
    /// No call failed, but something that was requested is not available; the text says why.
    #[error("{0}")]
    Refused(String),
    /// Another failure, preceded by its context.
    #[error("{operation}: {error}")]
    In { operation: String, error: Box<Self> },
}

impl CudaError {
    /// A library's call that failed.
    pub(super) fn library(call: impl Into<String>, code: u32, message: impl Into<String>) -> Self {
        Self::Library { call: call.into(), code, message: message.into() }
    }

    /// Adds context to the failure.
    pub(super) fn in_operation(self, operation: impl Into<String>) -> Self {
        Self::In { operation: operation.into(), error: Box::new(self) }
    }
}

impl From<String> for CudaError {
    fn from(why: String) -> Self {
        Self::Refused(why)
    }
}

impl From<&str> for CudaError {
    fn from(why: &str) -> Self {
        Self::Refused(why.to_owned())
    }
}

/// A driver call that failed.
pub(super) fn failed(call: &'static str, error: DriverError) -> CudaError {
    let name = error.error_name().ok().and_then(|n| n.to_str().ok()).unwrap_or("an unknown error");
    let text = error.error_string().ok().and_then(|n| n.to_str().ok()).unwrap_or("no description");
    CudaError::Driver { call, code: error.0 as u32, message: format!("{name} ({text})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_call_and_its_result() {
        let message = "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".into();
        let driver = CudaError::Driver { call: "cuMemAlloc", code: 2, message };
        assert_eq!(driver.to_string(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
        let library = CudaError::library("cublasLtMatmul", 7, "CUBLAS_STATUS_INVALID_VALUE");
        assert_eq!(library.to_string(), "cublasLtMatmul: CUBLAS_STATUS_INVALID_VALUE");
        assert_eq!(library.in_operation("eng1").to_string(), "eng1: cublasLtMatmul: CUBLAS_STATUS_INVALID_VALUE");
        assert_eq!(CudaError::from("cuDNN is missing").to_string(), "cuDNN is missing");
    }
}
