/* [01 http] Lingering close: a reply sent while the client still sends would be lost by the reset
 * that closing with unread bytes causes. So a duplicate of the descriptor stays open for a moment
 * after libmicrohttpd has closed its own, and what arrives is read and dropped. */
#pragma once

#include "server/state.h"

/* Call before libmicrohttpd closes fd. Does nothing when too many linger already. */
void linger_start(struct server *s, int fd) ON_LOOP;

/* Ends all at once, at shutdown; their handles close with the loop. */
void linger_end_all(struct server *s) ON_LOOP;
