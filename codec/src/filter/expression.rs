//! The tree of a compiled SQL92 expression, and the rules for what may be compared with what.
//!
//! Invariants:
//! - the operands of NOT, AND and OR are boolean; properties are cast by [`Node::BooleanOf`];
//! - a chain of AND or OR is one node, so that its length is not depth;
//! - properties are slots: the filter looks each name up once for a message.
//!
//! RocketMQ's names for it: `ComparisonExpression`, `LogicExpression`, `UnaryExpression`, `ConstantExpression`.

/// A constant, or the value of a property or of an operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    /// Unknown: a property that the message lacks, or what follows from one.
    Null,
    Bool(bool),
    /// A whole number that fits 32 bits; Java reads a property compared with it as one too.
    Int(i32),
    Long(i64),
    Double(f64),
    Text(&'a str),
}

/// A constant of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Constant {
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(Box<str>),
}

impl Constant {
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Constant::Null => Value::Null,
            Constant::Bool(value) => Value::Bool(*value),
            Constant::Int(value) => Value::Int(*value),
            Constant::Long(value) => Value::Long(*value),
            Constant::Double(value) => Value::Double(*value),
            Constant::Text(text) => Value::Text(text),
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Constant::Int(_) | Constant::Long(_) | Constant::Double(_))
    }

    fn is_boolean(&self) -> bool {
        matches!(self, Constant::Null | Constant::Bool(_))
    }
}

/// How two values are put in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// How a text is searched for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    Contains,
    StartsWith,
    EndsWith,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Constant(Constant),
    /// The property in this slot.
    Property(usize),
    /// A property where a boolean is wanted: unknown if absent, else false, as a property is a text.
    BooleanOf(Box<Node>),
    Negate(Box<Node>),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Equal(Box<Node>, Box<Node>),
    IsNull(Box<Node>),
    Compare(Order, Box<Node>, Box<Node>),
    /// Value, low, high.
    Between(Box<Node>, Box<Node>, Box<Node>),
    /// Slot, sorted texts, and whether it is NOT IN.
    In(usize, Vec<Box<str>>, bool),
    /// What is searched, for what, and whether it is negated.
    Search(Search, Box<Node>, Box<str>, bool),
}

impl Node {
    pub(crate) fn is_boolean(&self) -> bool {
        match self {
            Node::Constant(constant) => constant.is_boolean(),
            Node::Property(_) | Node::Negate(_) => false,
            Node::BooleanOf(_) | Node::Not(_) | Node::And(_) | Node::Or(_) | Node::Equal(..) => true,
            Node::IsNull(_) | Node::Compare(..) | Node::Between(..) | Node::In(..) | Node::Search(..) => true,
        }
    }

    /// The node where a boolean is wanted.
    pub(crate) fn into_boolean(self) -> Result<Node, &'static str> {
        match self {
            Node::Property(_) => Ok(Node::BooleanOf(Box::new(self))),
            boolean if boolean.is_boolean() => Ok(boolean),
            _ => Err("a condition was expected, a value ends"),
        }
    }

    /// Refuses what `<` and its kin cannot take: constants other than numbers, and conditions.
    pub(crate) fn check_ordered(&self) -> Result<(), &'static str> {
        match self {
            Node::Constant(constant) if constant.is_number() => Ok(()),
            Node::Constant(_) => {
                Err("only numbers and properties can be put in order; another constant ends")
            }
            node if node.is_boolean() => Err("a condition cannot be put in order; one ends"),
            _ => Ok(()),
        }
    }

    /// Refuses what `=` cannot take: NULL, and TRUE or FALSE before a constant that is neither.
    pub(crate) fn check_equal(&self, right: &Node) -> Result<(), &'static str> {
        let null = Node::Constant(Constant::Null);
        if *self == null || *right == null {
            return Err("NULL is compared with IS NULL only; a comparison with it ends");
        }
        match (self, right) {
            (Node::Constant(left), Node::Constant(right)) if left.is_boolean() && !right.is_boolean() => {
                Err("TRUE or FALSE is compared with another constant, which ends")
            }
            _ => Ok(()),
        }
    }
}
