//! Whether the tenants of a queue take turns by what they have of it.
//!
//! Rule: dominant resource fairness (Ghodsi et al., NSDI'11), as Volcano's `drf` plugin has it between namespaces
//! (`pkg/scheduler/plugins/drf`), inside one queue: of jobs of one priority that of the tenant goes first whose
//! dominant share is the smallest. A tenant's share of a resource is what its jobs are charged in the queue, of what
//! the queue may have now; the largest of them is the dominant one. Shares are compared as fractions, exactly. A tenant
//! is a namespace, or a user; jobs of which no user is known are those of their namespace. The nearest queue on the way
//! to the root that says something counts, for each queue below it alone.

/// A queue's word on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantOrder {
    /// Its tenants do not matter.
    None,
    /// Namespaces take turns.
    Namespaces,
    /// Users do.
    Users,
}

impl TenantOrder {
    /// All of them.
    const ALL: [Self; 3] = [Self::None, Self::Namespaces, Self::Users];

    /// As the annotation says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Namespaces => "drf-by-namespace",
            Self::Users => "drf-by-user",
        }
    }

    /// Of the annotation's text.
    ///
    /// # Errors
    /// With why it can not be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let said = || text.chars().take(40).collect::<String>();
        let named = Self::ALL.into_iter().find(|order| order.as_str() == text);
        named.ok_or_else(|| format!("{:?} is no order: there are drf-by-namespace, drf-by-user and none", said()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_there_is_not_is_told_in_words() {
        for order in TenantOrder::ALL {
            assert_eq!(TenantOrder::parse(order.as_str()), Ok(order));
        }
        let problem = TenantOrder::parse("drf").unwrap_err();
        assert_eq!(problem, "\"drf\" is no order: there are drf-by-namespace, drf-by-user and none");
    }
}
