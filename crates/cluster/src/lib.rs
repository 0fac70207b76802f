//! Transport and drivers that run Elastin's protocols on sockets.
