/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the shield's rules look at in a packet, and what they do with it. */
#pragma once

/* Fields of a packet, in the order of rules::tables. */
enum shield_field {
	SHIELD_SOURCE,
	SHIELD_DESTINATION,
	SHIELD_SOURCE_PORT,
	SHIELD_DESTINATION_PORT,
	SHIELD_KIND,
	SHIELD_DETAIL,
	SHIELD_HEADER,
	SHIELD_VLAN,
	SHIELD_LENGTH,
	/* What the machine knows (filter/known.h): looked for only where a rule that asks would apply otherwise. */
	SHIELD_KNOWN,
	SHIELD_FIELDS,
};

enum shield_action { SHIELD_PASS, SHIELD_DROP, SHIELD_LIMIT, SHIELD_CHALLENGE };
