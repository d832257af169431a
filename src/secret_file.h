/*
 * secret_file.h
 *		Reads a file that holds a secret.
 */
#ifndef SNOWID_SECRET_FILE_H
#define SNOWID_SECRET_FILE_H

extern ssize_t secret_file_read(const char *path, char *buf, size_t size,
								char *err, size_t err_size);

#endif							/* SNOWID_SECRET_FILE_H */
