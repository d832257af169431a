/*
 * secret_file.h
 *		Reads a file that holds a secret.
 */
#ifndef SNOWID_SECRET_FILE_H
#define SNOWID_SECRET_FILE_H

#pragma GCC visibility push(hidden)

extern ssize_t secret_file_read(const char *path, char *buf, size_t size,
								char *err, size_t err_size);

#pragma GCC visibility pop

#endif							/* SNOWID_SECRET_FILE_H */
