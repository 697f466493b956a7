//! Where packets die: every packet offered to the machine is delivered, lost at a named station, or unexplained.
