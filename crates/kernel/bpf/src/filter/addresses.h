/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a packet's source and destination are to the rules, and which protected prefix it goes to. */
#pragma once

#include "filter/fields.h"
#include "lib/parse.h"
#include "lib/prefix.h"

/* One section a field, each with all of its parts, and where they are in it. */
__u64 shield_source_data[1] SEC(".data.shield_src");
__u64 shield_destination_data[1] SEC(".data.shield_dst");
__u64 shield_protected_data[1] SEC(".data.shield_prot");
const volatile struct prefix_table shield_source_prefixes;
const volatile struct prefix_table shield_destination_prefixes;
const volatile struct prefix_table shield_protected_prefixes;

__noinline __u32 shield_v6_probe(__u32 which, __u64 high, __u64 low, __u32 len)
{
	if (which == SHIELD_SOURCE)
		return prefix_v6_find(shield_source_data, &shield_source_prefixes, high, low, len);
	if (which == SHIELD_DESTINATION)
		return prefix_v6_find(shield_destination_data, &shield_destination_prefixes, high, low, len);
	return prefix_v6_find(shield_protected_data, &shield_protected_prefixes, high, low, len);
}

static __always_inline __u32 shield_source_class(const struct packet *packet)
{
	return prefix_class(shield_source_data, &shield_source_prefixes, shield_v6_probe, SHIELD_SOURCE, packet->family,
			    packet->source);
}

static __always_inline __u32 shield_destination_class(const struct packet *packet)
{
	return prefix_class(shield_destination_data, &shield_destination_prefixes, shield_v6_probe, SHIELD_DESTINATION,
			    packet->family, packet->destination);
}

/* The number of the protected prefix plus 1; 0: none. */
static __always_inline __u32 shield_protected(const struct packet *packet)
{
	return prefix_class(shield_protected_data, &shield_protected_prefixes, shield_v6_probe, SHIELD_FIELDS,
			    packet->family, packet->destination);
}

/* Up to four protected prefixes of IPv4, the longest first, as on the wire; number + 1, or 0: unused. If there are none, those of IPv4 are in
 * the table. */
#define SHIELD_FEW 4
const volatile __u32 shield_few_address[SHIELD_FEW] = {};
const volatile __u32 shield_few_mask[SHIELD_FEW] = {};
const volatile __u32 shield_few_number[SHIELD_FEW] = {};

/* shield_protected() of an IPv4 packet. */
static __always_inline __u32 shield_protected_v4(const struct packet *packet)
{
	__u32 number = 0;
	int i;

	if (!shield_few_number[0])
		return shield_protected(packet);
#pragma clang loop unroll(full)
	for (i = SHIELD_FEW - 1; i >= 0; i--)
		if (shield_few_number[i] && (packet->destination[0] & shield_few_mask[i]) == shield_few_address[i])
			number = shield_few_number[i];
	return number;
}
