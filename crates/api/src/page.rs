//! Pages of a list.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// Which page, of a list that has no filters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListPage {
    /// How many a page holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200, default = 50, example = 50, nullable = false)]
    pub limit: Option<u32>,
    /// The `nextCursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(max_length = 1000, pattern = "^[A-Za-z0-9_-]*$", nullable = false)]
    pub cursor: Option<String>,
}

/// A page of any list, as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the list goes on; null on the last page.
    pub next_cursor: Option<String>,
}
