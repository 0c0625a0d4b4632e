//! From the text of a SQL92 expression to its tree.
//!
//! Invariants:
//! - what RocketMQ's grammar takes is taken, with two differences: words behind a whole expression are an
//!   error (RocketMQ ignores them, so that `a LIKE 'x'` means `a`), and `0.0` and `0L` are numbers;
//! - length, nesting and the number of nodes are limited, so that neither parsing nor evaluating can exhaust the
//!   stack;
//! - an error tells line and column.
//!
//! ```text
//! or      = and { OR and }
//! and     = equal { AND equal }
//! equal   = order { ( "=" | "<>" ) order | IS [ NOT ] NULL }
//! order   = unary { ( ">" | ">=" | "<" | "<=" ) unary
//!                 | [ NOT ] BETWEEN unary AND unary
//!                 | [ NOT ] IN "(" text { "," text } ")"
//!                 | [ NOT ] ( CONTAINS | STARTSWITH | ENDSWITH ) text }
//! unary   = { "+" | "-" | NOT } ( constant | name | "(" or ")" )
//! ```
//!
//! RocketMQ's name for it: `SelectorParser`.

use crate::error::CodecError;
use crate::filter::eval::order_of;
use crate::filter::expression::{Constant, Node, Order, Search};
use crate::filter::lexer::{Kind, Lexer, Token, error_at};

/// Longest expression: bytes.
pub const EXPRESSION_MAX_BYTES: usize = 65_536;
/// Deepest nesting of parentheses, signs and NOT, and longest chain of comparisons.
pub const DEPTH_MAX: usize = 64;
/// Most properties that one expression may name.
pub const PROPERTIES_MAX: usize = 64;

/// A compiled expression and the names of its slots.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) root: Node,
    pub(crate) names: Vec<Box<str>>,
}

/// Reads a whole expression.
///
/// # Errors
/// `TooLong`, or `Invalid` with the position.
pub(crate) fn parse(source: &str) -> Result<Parsed, CodecError> {
    if source.len() > EXPRESSION_MAX_BYTES {
        return Err(CodecError::TooLong {
            what: "SQL92 expression",
            len: source.len(),
            max: EXPRESSION_MAX_BYTES,
        });
    }
    let mut lexer = Lexer::new(source);
    let first = lexer.next()?;
    let mut parser = Parser { source, lexer, token: first, names: Vec::new(), depth: 0 };
    let root = parser.or()?;
    let root = parser.boolean(root)?;
    let is_comment = source.get(parser.token.at..).is_some_and(|rest| rest.starts_with("--"));
    if parser.token.kind != Kind::End && !is_comment {
        return Err(parser.unexpected("the end"));
    }
    Ok(Parsed { root, names: parser.names })
}

struct Parser<'a> {
    source: &'a str,
    lexer: Lexer<'a>,
    /// The token that is looked at.
    token: Token<'a>,
    names: Vec<Box<str>>,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn or(&mut self) -> Result<Node, CodecError> {
        let first = self.and()?;
        if self.token.kind != Kind::Or {
            return Ok(first);
        }
        let mut parts = vec![self.boolean(first)?];
        while self.take(Kind::Or)? {
            let part = self.and()?;
            parts.push(self.boolean(part)?);
        }
        Ok(Node::Or(parts))
    }

    fn and(&mut self) -> Result<Node, CodecError> {
        let first = self.equal()?;
        if self.token.kind != Kind::And {
            return Ok(first);
        }
        let mut parts = vec![self.boolean(first)?];
        while self.take(Kind::And)? {
            let part = self.equal()?;
            parts.push(self.boolean(part)?);
        }
        Ok(Node::And(parts))
    }

    fn equal(&mut self) -> Result<Node, CodecError> {
        let depth = self.depth;
        let mut left = self.order()?;
        loop {
            left = match self.token.kind {
                Kind::Equal => {
                    self.advance()?;
                    self.equals(left)?
                }
                Kind::NotEqual => {
                    self.advance()?;
                    Node::Not(Box::new(self.equals(left)?))
                }
                Kind::Is => {
                    self.advance()?;
                    let is_not = self.take(Kind::Not)?;
                    self.expect(Kind::Null, "NULL")?;
                    let is_null = Node::IsNull(Box::new(left));
                    if is_not { Node::Not(Box::new(is_null)) } else { is_null }
                }
                _ => break,
            };
            self.deeper()?;
        }
        self.depth = depth;
        Ok(left)
    }

    fn equals(&mut self, left: Node) -> Result<Node, CodecError> {
        let right = self.order()?;
        self.checked(left.check_equal(&right))?;
        Ok(Node::Equal(Box::new(left), Box::new(right)))
    }

    fn order(&mut self) -> Result<Node, CodecError> {
        let depth = self.depth;
        let mut left = self.unary()?;
        loop {
            let order = match self.token.kind {
                Kind::Greater => Order::Greater,
                Kind::GreaterOrEqual => Order::GreaterOrEqual,
                Kind::Less => Order::Less,
                Kind::LessOrEqual => Order::LessOrEqual,
                Kind::Not | Kind::Between | Kind::In | Kind::Contains | Kind::StartsWith | Kind::EndsWith => {
                    left = self.condition(left)?;
                    self.deeper()?;
                    continue;
                }
                _ => break,
            };
            self.advance()?;
            let right = self.unary()?;
            left = self.compare(order, left, right)?;
            self.deeper()?;
        }
        self.depth = depth;
        Ok(left)
    }

    fn compare(&self, order: Order, left: Node, right: Node) -> Result<Node, CodecError> {
        self.checked(left.check_ordered())?;
        self.checked(right.check_ordered())?;
        Ok(Node::Compare(order, Box::new(left), Box::new(right)))
    }

    /// `[NOT] BETWEEN`, `[NOT] IN`, `[NOT] CONTAINS` and its kin, behind what they are said of.
    fn condition(&mut self, left: Node) -> Result<Node, CodecError> {
        let is_not = self.take(Kind::Not)?;
        let search = match self.token.kind {
            Kind::Between => return self.between(left, is_not),
            Kind::In => return self.in_list(left, is_not),
            Kind::Contains => Search::Contains,
            Kind::StartsWith => Search::StartsWith,
            Kind::EndsWith => Search::EndsWith,
            _ => return Err(self.unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")),
        };
        self.advance()?;
        let wanted = self.text()?;
        Ok(Node::Search(search, Box::new(left), wanted, is_not))
    }

    fn between(&mut self, left: Node, is_not: bool) -> Result<Node, CodecError> {
        self.advance()?;
        let low = self.unary()?;
        self.expect(Kind::And, "AND")?;
        let high = self.unary()?;
        for node in [&left, &low, &high] {
            self.checked(node.check_ordered())?;
        }
        if let (false, Node::Constant(low), Node::Constant(high)) = (is_not, &low, &high)
            && order_of(high.value(), low.value()).is_ok_and(|order| order.is_lt())
        {
            return self.checked(Err("the low bound is above the high bound, which ends"));
        }
        let between = Node::Between(Box::new(left), Box::new(low), Box::new(high));
        Ok(if is_not { Node::Not(Box::new(between)) } else { between })
    }

    fn in_list(&mut self, left: Node, is_not: bool) -> Result<Node, CodecError> {
        let Node::Property(slot) = left else {
            return Err(self.unexpected("a property before IN, which comes"));
        };
        self.advance()?;
        self.expect(Kind::Open, "(")?;
        let mut texts = vec![self.text()?];
        while self.take(Kind::Comma)? {
            texts.push(self.text()?);
        }
        self.expect(Kind::Close, "a comma or )")?;
        texts.sort_unstable();
        texts.dedup();
        Ok(Node::In(slot, texts, is_not))
    }

    fn unary(&mut self) -> Result<Node, CodecError> {
        let depth = self.depth;
        self.deeper()?;
        let node = match self.token.kind {
            Kind::Plus => {
                self.advance()?;
                self.unary()?
            }
            Kind::Minus => {
                self.advance()?;
                Node::Negate(Box::new(self.unary()?))
            }
            Kind::Not => {
                self.advance()?;
                let operand = self.unary()?;
                Node::Not(Box::new(self.boolean(operand)?))
            }
            Kind::Open => {
                self.advance()?;
                let inner = self.or()?;
                self.expect(Kind::Close, ")")?;
                inner
            }
            _ => self.primary()?,
        };
        self.depth = depth;
        Ok(node)
    }

    fn primary(&mut self) -> Result<Node, CodecError> {
        let Token { kind, text, .. } = self.token;
        let node = match kind {
            Kind::Text => Node::Constant(Constant::Text(self.text()?)),
            Kind::Integer => Node::Constant(self.integer(text)?),
            Kind::Decimal => Node::Constant(self.decimal(text)?),
            Kind::True => Node::Constant(Constant::Bool(true)),
            Kind::False => Node::Constant(Constant::Bool(false)),
            Kind::Null => Node::Constant(Constant::Null),
            Kind::Name => Node::Property(self.slot(text)?),
            _ => return Err(self.unexpected("a constant, a property, NOT, a sign or (")),
        };
        if kind != Kind::Text {
            self.advance()?;
        }
        Ok(node)
    }

    fn integer(&self, text: &str) -> Result<Constant, CodecError> {
        let Ok(value) = text.trim_end_matches(['l', 'L']).parse::<i64>() else {
            return self.checked(Err("a whole number beyond 64 bits stands"));
        };
        Ok(i32::try_from(value).map_or(Constant::Long(value), Constant::Int))
    }

    fn decimal(&self, text: &str) -> Result<Constant, CodecError> {
        let value = text.parse::<f64>().unwrap_or(f64::INFINITY);
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        let is_zero = mantissa.bytes().all(|byte| matches!(byte, b'0' | b'.'));
        if value.is_infinite() || (value == 0.0 && !is_zero) {
            return self.checked(Err("a number beyond the range of 64-bit floating point stands"));
        }
        Ok(Constant::Double(value))
    }

    fn slot(&mut self, name: &str) -> Result<usize, CodecError> {
        if let Some(slot) = self.names.iter().position(|known| **known == *name) {
            return Ok(slot);
        }
        if self.names.len() >= PROPERTIES_MAX {
            return self.checked(Err("one property more than an expression may name stands"));
        }
        self.names.push(name.into());
        Ok(self.names.len().saturating_sub(1))
    }

    /// A text constant, without its quotes.
    fn text(&mut self) -> Result<Box<str>, CodecError> {
        if self.token.kind != Kind::Text {
            return Err(self.unexpected("a text in single quotes"));
        }
        let quoted = self.token.text;
        let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        self.advance()?;
        Ok(inner.replace("''", "'").into())
    }

    fn boolean(&self, node: Node) -> Result<Node, CodecError> {
        self.checked(node.into_boolean())
    }

    fn checked<T>(&self, result: Result<T, &'static str>) -> Result<T, CodecError> {
        result.map_err(|message| error_at(self.source, self.token.at, message))
    }

    fn deeper(&mut self) -> Result<(), CodecError> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > DEPTH_MAX {
            let why = format_args!("nesting deeper than {DEPTH_MAX} levels");
            return Err(error_at(self.source, self.token.at, why));
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), CodecError> {
        self.token = self.lexer.next()?;
        Ok(())
    }

    fn take(&mut self, kind: Kind) -> Result<bool, CodecError> {
        let is_there = self.token.kind == kind;
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    fn expect(&mut self, kind: Kind, what: &'static str) -> Result<(), CodecError> {
        if self.take(kind)? { Ok(()) } else { Err(self.unexpected(what)) }
    }

    fn unexpected(&self, wanted: &str) -> CodecError {
        error_at(self.source, self.token.at, format_args!("{wanted} was expected, found {}", self.token))
    }
}
