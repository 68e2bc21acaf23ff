// SPDX-License-Identifier: Apache-2.0
//
// The part of XRT's C interface that PYNQ 3.0.1 uses of a PCIe card, in the layout of XRT 2.13 to
// 2.20 on 64-bit Linux. XRT's own header is not needed to build the simulated card.
#ifndef FASTDELTA_XRT_ABI_H
#define FASTDELTA_XRT_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void* xclDeviceHandle;
typedef unsigned int xclBufferHandle;

enum { XCL_BO_SYNC_BO_TO_DEVICE = 0, XCL_BO_SYNC_BO_FROM_DEVICE = 1 };
enum { XCL_ADDR_KERNEL_CTRL = 2 };
enum { XCL_USER_RESET = 2 };

struct xclDeviceInfo2 {
    unsigned int mMagic;
    char mName[256];
    unsigned short mHALMajorVersion, mHALMinorVersion, mVendorId, mDeviceId, mSubsystemId, mSubsystemVendorId, mDeviceVersion;
    size_t mDDRSize, mDataAlignment, mDDRFreeSize, mMinTransferSize;
    unsigned short mDDRBankCount;
    unsigned short mOCLFrequency[4];
    unsigned short mPCIeLinkWidth, mPCIeLinkSpeed, mDMAThreads;
    unsigned short mOnChipTemp, mFanTemp, mVInt, mVAux, mVBram;
    float mCurrent;
    unsigned short mNumClocks, mFanSpeed;
    bool mMigCalib;
    unsigned long long mXMCVersion, mMBVersion;
    unsigned short m12VPex, m12VAux;
    unsigned long long mPexCurr, mAuxCurr;
    unsigned short mFanRpm;
    unsigned short mDimmTemp[4], mSE98Temp[4];
    unsigned short m3v3Pex, m3v3Aux, mDDRVppBottom, mDDRVppTop, mSys5v5, m1v2Top, m1v8Top, m0v85, mMgt0v9, m12vSW, mMgtVtt, m1v2Bottom;
    unsigned long long mDriverVersion;
    unsigned int mPciSlot;
    bool mIsXPR;
    unsigned long long mTimeStamp;
    char mFpga[256];
    unsigned short mPCIeLinkWidthMax, mPCIeLinkSpeedMax, mVccIntVol, mVccIntCurr, mNumCDMA;
};

struct xclDeviceUsage {
    size_t h2c[8], c2h[8], ddrMemUsed[8];
    unsigned int ddrBOAllocated[8];
    unsigned int totalContexts;
    uint64_t xclbinId[4];
    unsigned int dma_channel_cnt, mm_channel_cnt;
    uint64_t memSize[8];
};

struct xclBOProperties {
    uint32_t handle, flags;
    uint64_t size, paddr;
    int reserved;
};

unsigned int xclProbe(void);
unsigned int xclVersion(void);
xclDeviceHandle xclOpen(unsigned int index, const char* log, int level);
void xclClose(xclDeviceHandle);
int xclGetDeviceInfo2(xclDeviceHandle, struct xclDeviceInfo2*);
int xclGetUsageInfo(xclDeviceHandle, struct xclDeviceUsage*);
int xclResetDevice(xclDeviceHandle, int kind);
int xclLockDevice(xclDeviceHandle);
int xclUnlockDevice(xclDeviceHandle);
int xclLoadXclBin(xclDeviceHandle, const void* xclbin);

int xclIPName2Index(xclDeviceHandle, const char* name);
int xclOpenContext(xclDeviceHandle, const unsigned char* uuid, unsigned int index, bool shared);
int xclCloseContext(xclDeviceHandle, const unsigned char* uuid, unsigned int index);

xclBufferHandle xclAllocBO(xclDeviceHandle, size_t size, int unused, unsigned int flags);
xclBufferHandle xclAllocUserPtrBO(xclDeviceHandle, void* host, size_t size, unsigned int flags);
void xclFreeBO(xclDeviceHandle, xclBufferHandle);
int xclGetBOProperties(xclDeviceHandle, xclBufferHandle, struct xclBOProperties*);
void* xclMapBO(xclDeviceHandle, xclBufferHandle, bool write);
int xclUnmapBO(xclDeviceHandle, xclBufferHandle, void* address);
int xclSyncBO(xclDeviceHandle, xclBufferHandle, int direction, size_t size, size_t offset);
int xclCopyBO(xclDeviceHandle, xclBufferHandle to, xclBufferHandle from, size_t size, size_t to_offset, size_t from_offset);
size_t xclWriteBO(xclDeviceHandle, xclBufferHandle, const void* from, size_t size, size_t seek);
size_t xclReadBO(xclDeviceHandle, xclBufferHandle, void* to, size_t size, size_t skip);

int xclExecBuf(xclDeviceHandle, xclBufferHandle);
int xclExecBufWithWaitList(xclDeviceHandle, xclBufferHandle, size_t count, xclBufferHandle* list);
int xclExecWait(xclDeviceHandle, int milliseconds);

size_t xclRead(xclDeviceHandle, int space, uint64_t offset, void* to, size_t size);
size_t xclWrite(xclDeviceHandle, int space, uint64_t offset, const void* from, size_t size);
int xclRegRead(xclDeviceHandle, uint32_t index, uint32_t offset, uint32_t* value);
int xclRegWrite(xclDeviceHandle, uint32_t index, uint32_t offset, uint32_t value);

#ifdef __cplusplus
}
#endif
#endif
