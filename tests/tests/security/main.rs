//! Security: hostile input (`hostile`), credentials and tenants (`isolation`), limits and attacks
//! (`limits`).

mod hostile;
mod isolation;
mod limits;
