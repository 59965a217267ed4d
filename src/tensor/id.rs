//! Numbers that identify the entries of a list.

/// Declares a newtype for the indices of a list. It is compared, ordered, hashed and serialised as its number.
macro_rules! position_id {
    ($(#[$about:meta])* $Name:ident) => {
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize,
        )]
        #[serde(transparent)]
        pub struct $Name(pub u32);
    };
}
pub(crate) use position_id;
