//! From the counters of the stack to the input of the arithmetic.

use host::stack::{Link, Socket};

use super::*;

/// What `/proc/net/raw` lists is known by its inode, which is no cookie.
#[test]
fn an_inode_is_no_cookie() {
    let line =
        "  sl\n   1: 00000000:0001 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 7 2 0 9\n";
    let root = Root::from_files([("proc/net/raw".to_owned(), line.to_owned())].into());
    let stack = StackCounters::read(&root);
    assert_eq!(stack.sockets.values().map(|s: &Socket| s.inode).collect::<Vec<_>>(), [7]);
    let found = sockets(&stack, &BTreeMap::<u32, Link>::new());
    assert_eq!((found[0].cookie, found[0].inode, found[0].packets), (0, 7, 9));
}
