//! Enums whose values have names.

/// Declares an enum and its `as_str`, and all values in order if `pub const ALL` is asked for: each value is listed once.
#[doc(hidden)]
#[macro_export]
macro_rules! named_values {
    (
        $(#[$about:meta])*
        pub enum $type:ident {
            $($(#[$about_value:meta])* $value:ident $(= $number:literal)? => $name:literal,)+
        }

        $(#[$about_all:meta])*
        pub const ALL;

        $(#[$about_name:meta])*
        pub const fn as_str;
    ) => {
        $crate::named_values! {
            $(#[$about])*
            pub enum $type {
                $($(#[$about_value])* $value $(= $number)? => $name,)+
            }

            $(#[$about_name])*
            pub const fn as_str;
        }

        impl $type {
            $(#[$about_all])*
            pub const ALL: &'static [$type] = &[$($type::$value,)+];
        }
    };
    (
        $(#[$about:meta])*
        pub enum $type:ident {
            $($(#[$about_value:meta])* $value:ident $(= $number:literal)? => $name:literal,)+
        }

        $(#[$about_name:meta])*
        pub const fn as_str;
    ) => {
        $(#[$about])*
        pub enum $type {
            $($(#[$about_value])* $value $(= $number)?,)+
        }

        impl $type {
            $(#[$about_name])*
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($type::$value => $name,)+
                }
            }
        }
    };
}
