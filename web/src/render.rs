//! The errors of templates, and `render` of the structs that have one.

/// A template could not be rendered.
#[derive(Debug, thiserror::Error)]
#[error("page could not be rendered")]
pub struct RenderError(#[from] askama::Error);

/// Gives the structs `render`, so that callers need not know the template engine.
macro_rules! renders {
    ($($name:ident),+ $(,)?) => {
        $(impl $name {
            /// The HTML.
            pub fn render(&self) -> Result<String, $crate::RenderError> {
                Ok(::askama::Template::render(self)?)
            }
        })+
    };
}

pub(crate) use renders;
