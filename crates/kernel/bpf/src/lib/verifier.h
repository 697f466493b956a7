/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Ways past what the compiler and the verifier would make of a program. */
#pragma once

#include "lib/common.h"

/* Hides from the compiler how large a table is: user space has made it larger. */
#define resized(table) \
	({ \
		typeof(&(table)[0]) at = (table); \
		asm volatile("" : "+r"(at)); \
		at; \
	})

/* A number times a constant that user space sets. Kernels before 6.10 know the bounds of a product (and of OR and XOR) only when its right
 * side is the constant, and the compiler would choose the sides. */
static __always_inline __u64 times(__u64 value, __u64 constant)
{
	asm volatile("%0 *= %1" : "+r"(value) : "r"(constant));
	return value;
}

/* The lowest bits of a number, for the verifier to see: the compiler leaves a mask out that changes nothing. */
static __always_inline __u64 low_bits(__u64 value, __u64 mask)
{
	asm volatile("" : "+r"(value));
	return value & mask;
}

/* Keeps the compiler from comparing a copy of a number whose bounds the verifier then does not know. */
#define keep(x) asm volatile("" : "+r"(x))

/* The place `at` bytes behind `from` in a frame. The compiler is not to know that it lies behind: of two tests against the frame's end it would leave
 * out the one for the bytes before this place, which the verifier needs. A bound of `at` that the verifier is to know is set before. */
static __always_inline void *apart(void *from, __u64 at)
{
	keep(at);
	return from + at;
}

/* Has the verifier forget what it knows of a number, so that paths which differ by it alone are one path again. `other` is any number
 * that it does not know. */
#define forget(x, other) \
	do { \
		x ^= (other); \
		asm volatile("" : "+r"(x)); \
		x ^= (other); \
	} while (0)
