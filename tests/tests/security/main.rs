//! Security: hostile input (`hostile`), credentials and tenants (`isolation`), limits and attacks
//! (`limits`), the page's door (`web`).

mod hostile;
mod isolation;
mod limits;
mod web;
